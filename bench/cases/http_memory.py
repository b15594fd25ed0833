"""HTTP: whether the memory of a server grows with the keys that it has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.cases.http_load import requests_by_hand
from bench.cases.http_server import serving
from bench.report.rows import Row
from bench.settings import Settings
from bench.timing import Spread, Tick

PARTS: Final = 20
_WARM: Final = 2
_MOST: Final = 1.1


def memory_row(folder: Path, settings: Settings, tick: Tick) -> Row:
    """New keys that expire after two seconds, on SQLite; what the server holds after each part."""
    side = "oncekey_brief"
    held: list[float] = []
    with serving({side: f"sqlite:///{folder / 'brief.db'}"}) as answering:
        server = answering[side]
        for _ in range(PARTS):
            sent = requests_by_hand(server.port, settings.http_keys // PARTS)
            assert not sent.refused, sent
            memory = server.memory()
            if memory is not None:
                held.append(memory)
            tick()
    warm, most = (held[_WARM - 1], max(held[_WARM:])) if held else (None, 0.0)
    growth = None if warm is None else most / warm
    return Row(
        id="http-memory",
        title=f"HTTP, memory of the server over {settings.http_keys:,} unique keys, SQLite",
        value=most,
        unit="MiB",
        against=f"after the first {settings.http_keys * _WARM // PARTS:,}",
        against_value=warm,
        ratio=None if growth is None else Spread(growth, growth, growth),
        target=f"at most {_MOST}x",
        met=None if growth is None else growth <= _MOST,
        remark=_remark(held),
    )


def _remark(held: list[float]) -> str:
    if not held:
        return "the system does not tell how much memory a process holds"
    return "MiB on the way: " + ", ".join(f"{one:.1f}" for one in held[_WARM - 1 :: 3])
