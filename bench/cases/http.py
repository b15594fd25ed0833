"""HTTP: requests per second of a small application, bare and under protection, on one Redis.

Every server is a uvicorn with one worker on a core of its own; the load and the redis-server share
another. The peers answer the same requests in the same rounds.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from bench.cases.http_load import CONNECTIONS, Kind, Load, load
from bench.cases.http_server import Answering, post, serving
from bench.cores import Cores, on_one_core
from bench.peers.folders import installed
from bench.peers.http import NOT_COMPARED, PEERS, install, runs_on
from bench.redis_server import Server
from bench.report.rows import Row, closest_row
from bench.settings import Settings
from bench.timing import Spread, Tick, Timings, spread_of

KINDS: Final[tuple[Kind, ...]] = ("none", "new", "duplicate")
_BARE: Final = ("bare", "none")
_OURS: Final[tuple[tuple[str, Kind], ...]] = (
    ("oncekey", "none"),
    ("oncekey", "new"),
    ("oncekey", "duplicate"),
    ("oncekey_uncached", "duplicate"),
)
_LEAST: Final = {"none": 0.95, "new": 0.58, "duplicate": 1.3}
_BESIDE_PEERS: Final[tuple[tuple[str, Kind], ...]] = (
    ("oncekey", "new"),
    ("oncekey_uncached", "duplicate"),
)
_TITLES: Final = {"none": "no key sent", "new": "new key", "duplicate": "duplicate"}

Turn = tuple[str, Kind]


def turns(settings: Settings) -> int:
    """How often a run with all peers ticks."""
    return settings.http_rounds * (1 + len(_OURS) + len(PEERS) * len(KINDS))


class Measured(NamedTuple):
    """What came out of all rounds."""

    rates: Timings
    cpu: Timings
    """Seconds of the server's processor for one request; empty where the system does not tell."""
    refused: Counter[Turn]
    peers: tuple[str, ...]
    load: str
    bound: bool


def http_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """A row for each kind of request, with the peers beside it."""
    if _with_peers(settings):
        install()
    measured = None if server is None else _measured(server, settings, tick)
    rows = [_row(measured, side, kind) for side, kind in _OURS]
    return rows + [_beside_peers(measured, side, kind) for side, kind in _BESIDE_PEERS]


def _measured(server: Server, settings: Settings, tick: Tick) -> Measured:
    peers = tuple(PEERS) if _with_peers(settings) else ()
    there = filter(installed, peers)
    url = f"redis://127.0.0.1:{server.port}/0"
    wanted: list[Turn] = [_BARE, *_OURS, *((peer, kind) for peer in there for kind in KINDS)]
    go, words = load(whole_seconds=_with_peers(settings))
    with on_one_core() as cores:
        measured = Measured(Timings(), Timings(), Counter(), peers, words, cores is not None)
        for numbers in _rounds(settings):
            with serving({side: url for side, _ in wanted}) as answering:
                _prepare(server, answering, cores)
                for number in numbers:
                    for side, kind in reversed(wanted) if number % 2 else wanted:
                        _turn(measured, (side, kind), answering[side], go, settings)
                        tick()
    return measured


def _rounds(settings: Settings) -> list[list[int]]:
    """The rounds, grouped by those that share their servers.

    One process is a tenth faster than another of the same program, for as long as it lives: where
    its memory came to lie decides. So each round has its own, unless the run is only a trial.
    """
    numbers = list(range(settings.http_rounds))
    return [[number] for number in numbers] if _with_peers(settings) else [numbers]


def _prepare(server: Server, answering: Mapping[str, Answering], cores: Cores | None) -> None:
    """Every process is where it belongs, and does what it should."""
    if cores is not None:
        cores.mover(server.pid, cores.here)()
        for one in answering.values():
            cores.mover(one.pid, cores.other)()
    for side, one in answering.items():
        if side != "bare":
            _check(one)


def _with_peers(settings: Settings) -> bool:
    return settings.http_seconds >= 1


def _check(server: Answering) -> None:
    """It runs what is new, and replays what is not."""
    one, another = secrets.token_hex(8), secrets.token_hex(8)
    first = post(server.port, one)
    assert post(server.port, one) == first
    assert post(server.port, another) != first


def _turn(measured: Measured, turn: Turn, server: Answering, go: Load, settings: Settings) -> None:
    before = server.cpu()
    sent = go(server.port, turn[1], settings.http_seconds)
    while not sent.requests and not sent.refused and turn[0] not in PEERS:
        sent = go(server.port, turn[1], 2 * sent.seconds + 0.1)  # a busy machine needs more time
    after = server.cpu()
    assert turn[0] in PEERS or (sent.requests and not sent.refused), (turn, sent)
    measured.refused[turn] += sent.refused
    measured.rates.setdefault(_name(turn), []).append(_per(sent.seconds, sent.requests))
    # The system counts in hundredths of a second: nothing can be told from a short load.
    if before is not None and after is not None and settings.http_seconds >= 1:
        used = _per(after - before, sent.requests + sent.refused)
        measured.cpu.setdefault(_name(turn), []).append(used)


def _per(seconds: float, requests: int) -> float:
    """A peer that answers nothing takes forever."""
    return seconds / requests if requests else math.inf


def _name(turn: Turn) -> str:
    return " ".join(turn)


def _row(measured: Measured | None, side: str, kind: Kind) -> Row:
    cached = side == "oncekey"
    title = _TITLES[kind] if cached else f"{_TITLES[kind]}, cache off"
    speed = None if measured is None else _speed(measured, (side, kind))
    rates = None if measured is None else measured.rates
    least = _LEAST[kind] if cached else None
    return Row(
        id=f"http-{kind}" if cached else f"http-{kind}-uncached",
        title=f"HTTP, {title}, {CONNECTIONS} connections",
        value=0.0 if rates is None else 1 / rates.per_call(_name((side, kind))),
        unit="calls/s",
        against="bare Starlette on uvicorn",
        against_value=None if rates is None else 1 / rates.per_call(_name(_BARE)),
        ratio=speed,
        target="" if least is None else f"at least {least}x",
        met=None if speed is None or least is None else speed.median >= least,
        remark=_remark(measured, (side, kind)),
    )


def _beside_peers(measured: Measured | None, side: str, kind: Kind) -> Row:
    title = _TITLES[kind] if kind == "new" else f"{_TITLES[kind]}, cache off"
    peers = PEERS if measured is None else measured.peers
    remark = "" if peers else "no peer is tried under so short a load"
    return closest_row(
        None if measured is None else measured.rates,
        _name((side, kind)),
        {_shown(peer): _name((peer, kind)) for peer in peers},
        id_=f"peers-http-{kind}",
        title=f"Peers over HTTP, {title}, {CONNECTIONS} connections",
        remark="no redis-server was found" if measured is None else remark,
    )


def _shown(peer: str) -> str:
    return peer.replace("_", "-")


def _speed(measured: Measured, turn: Turn) -> Spread:
    return measured.rates.speed(_name(turn), _name(_BARE))


def _remark(measured: Measured | None, turn: Turn) -> str:
    if measured is None:
        return "no redis-server was found"
    parts = []
    if turn == _OURS[0]:  # once is enough
        rounds = len(measured.rates[_name(turn)])
        parts = [f"medians of {rounds} rounds", f"uvicorn runs on {runs_on()}", measured.load]
        if not measured.bound:
            parts.append("server and load were not bound to cores")
    if measured.cpu:
        ratio, micros = _cpu(measured, turn)
        parts.append(f"by CPU time of the server {ratio.median:.2f}x, {micros:.0f} µs a request")
    parts += [_peer(measured, (peer, turn[1])) for peer in measured.peers]
    if turn == _OURS[0]:
        parts.append(NOT_COMPARED)
    return "; ".join(parts)


def _cpu(measured: Measured, turn: Turn) -> tuple[Spread, float]:
    name = _name(turn)
    micros = statistics.median(measured.cpu[name]) * 1e6
    pairs = zip(measured.cpu[_name(_BARE)], measured.cpu[name], strict=True)
    return spread_of([bare / mine if mine else 0.0 for bare, mine in pairs]), micros


def _peer(measured: Measured, turn: Turn) -> str:
    peer = _shown(turn[0])
    if _name(turn) not in measured.rates:
        return f"{peer} missing"
    speed = _speed(measured, turn)
    told = f"{peer} {speed.median:.2f}x ({speed.low:.2f} to {speed.high:.2f})"
    if measured.cpu:
        told += f", by CPU {_cpu(measured, turn)[0].median:.2f}x"
    refused = measured.refused[turn]
    return f"{told}, {refused} requests refused" if refused else told
