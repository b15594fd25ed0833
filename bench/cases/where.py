"""Where the time of a call goes: the same call with and without each of its parts, side by side.

The key is made by `charge.key`, the fingerprint by what makes it, the store's share is that of its
verbs. What is left is the engine: single flight, the lease and its renewal, the judgement, the
result's bytes, the observers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from os import urandom
from pathlib import Path
from typing import Final, NamedTuple

from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order, protect
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from oncekey.core.fingerprint import of_arguments
from oncekey.core.requests import Claim, Settle
from oncekey.stores import Store

_DAY: Final = 86_400_000_000
_LEASE: Final = 300_000_000
_MARK: Final = "1:" + "a" * 64
_STORES: Final = ("Memory", "SQLite", "Redis")
_KINDS: Final = ("new key", "duplicate")


class _Parts(NamedTuple):
    """Whole calls, and the parts that they are made of."""

    call: Callable[[], object]
    key: Callable[[], object]
    mark: Callable[[], object]
    """The fingerprint."""
    store: Callable[[], object]


def where_rows(server: Server | None, folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """The share of each part in the wall time of a call of one caller. Caches are off."""
    urls = {"Memory": "memory://", "SQLite": f"sqlite:///{folder}/where.db"}
    if server is not None:
        urls["Redis"] = f"redis://127.0.0.1:{server.port}/0"
    sides: dict[str, Side] = {}
    with ExitStack() as opened:
        for store, url in urls.items():
            once = opened.enter_context(closing(Once(url, cache=False)))
            for kind, parts in zip(_KINDS, (_new(once), _duplicate(once)), strict=True):
                for name, part in parts._asdict().items():
                    sides[f"{store}, {kind}, {name}"] = _side(part, settings.commits)
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
    return [_row(timings, store, kind) for store in _STORES for kind in _KINDS]


def turns(settings: Settings) -> int:
    """How often it ticks."""
    return settings.rounds * len(_STORES) * len(_KINDS) * len(_Parts._fields)


def _side(part: Callable[[], object], calls: int) -> Side:
    def work(made: int) -> None:
        for _ in range(made):
            part()

    return Side(work, calls)


def _new(once: Once) -> _Parts:
    charge = protect(once)
    return _Parts(
        lambda: charge(new_order(), 40),
        lambda: charge.key(new_order(), 40),
        lambda: of_arguments({"order": new_order(), "amount": 40}),
        lambda: settled(once.store, new_order()),
    )


def _duplicate(once: Once) -> _Parts:
    charge, order = protect(once), new_order()
    charge(order, 40)
    key = charge.key(order, 40)
    return _Parts(
        lambda: charge(order, 40),
        lambda: charge.key(order, 40),
        lambda: of_arguments({"order": order, "amount": 40}),
        lambda: once.store.claim(_claim(key, None)),
    )


def _claim(key: str, mark: str | None) -> Claim:
    nonce = urandom(8).hex()
    return Claim("bench", key, nonce=nonce, fingerprint=mark, lease=_LEASE, ttl=_DAY, label="r")


def settled(store: Store, key: str) -> None:
    """A claim and a settle, as the engine would send them."""
    record = store.claim(_claim(key, _MARK)).record
    store.settle(
        Settle(
            "bench",
            key,
            token=record.token,
            nonce=record.nonce,
            status="completed",
            result=b"receipt of order-00000001 over 40",
            error=None,
            ttl=_DAY,
        )
    )


def _row(timings: Timings, store: str, kind: str) -> Row:
    name = f"{store}, {kind}"
    id_ = f"where-{store.lower()}-{kind.partition(' ')[0]}"
    title = f"{name}, the store's share"
    if f"{name}, call" not in timings:
        return Row(id=id_, title=title, value=0.0, unit="µs", remark="no redis-server was found")
    call, key, mark, verbs = (timings.per_call(f"{name}, {part}") for part in _Parts._fields)
    rest = max(0.0, call - key - mark - verbs)
    return Row(
        id=id_,
        title=title,
        value=verbs * 1e6,
        unit="µs",
        against="the whole call",
        against_value=call * 1e6,
        ratio=timings.cost(f"{name}, store", f"{name}, call"),
        remark=(
            f"the key takes {key * 1e6:.2g} µs, the fingerprint {mark * 1e6:.2g} µs and "
            f"the engine around them {rest * 1e6:.3g} µs"
        ),
    )
