"""The store of a small shop: one record of every status, as the pages and the tests show them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oncekey import Once, Policy
from oncekey.core.requests import Claim
from oncekey.stores import SQLiteStore

HOUR: Final = 3600 * 1_000_000
HALF: Final = HOUR // 2
CARD: Final = "card 4242"


class CardDeclinedError(Exception):
    """What the shop keeps and raises again."""


@dataclass
class Receipt:
    id: str
    paid_with: str


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def hours_ago(path: Path, hours: int) -> SQLiteStore:
    """The store as it was so many and a half hours ago: ages stay the same while tests run."""
    return SQLiteStore(path, clock=lambda: time.time_ns() // 1000 - hours * HOUR - HALF)


def open_shop(path: Path) -> None:
    """The file holds a record of every status, made in the last hours, and one that expired."""
    expired = hours_ago(path, 12 * 24)
    _using(expired, scope="billing").run("charge:1007", _charge, "1007")
    expired.close()
    store = hours_ago(path, 2)
    policy = Policy(keep=CardDeclinedError, on_crash="hold", heartbeat=False)
    once = _using(store, policy=policy, scope="billing").options(label="charge")
    once.run("charge:1041", _charge, "1041")
    _swallow(once, "charge:1042", CardDeclinedError("no funds"))
    _swallow(once, "charge:1043", TimeoutError("the gateway did not answer"), request="req-77")
    imports = _using(store, policy=policy).options(label="import")
    _swallow(imports, "import:42", ValueError("row 17 has no price"), upload="up-1")
    store.claim(running("report:11", label="report"))
    store.close()


def _using(store: SQLiteStore, **settings: Any) -> Once:
    """A Once that never purges by itself, however long the tests take."""
    once = Once(store, observers=(), **settings)
    once.core._purging = True
    return once


def running(key: str, *, label: str = "", lease: int = 12 * HOUR) -> Claim:
    """What an attempt asks that is still at it when somebody looks."""
    return Claim(None, key, nonce="n1", fingerprint=None, lease=lease, ttl=24 * HOUR, label=label)


def _charge(order: str) -> Receipt:
    return Receipt(f"pay-{order}", CARD)


def _swallow(once: Once, key: str, error: Exception, **facts: str) -> None:
    """The attempt has noted the facts, done one step and ended with the error."""
    try:
        with once.attempt(key) as attempt:
            if facts:
                attempt.note(**facts)
                attempt.step("prepare", str, "ready")
            raise error
    except type(error):
        pass
