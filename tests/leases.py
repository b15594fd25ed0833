"""What decides about a lease in place of the time that passes: a test does."""

from collections.abc import Callable
from typing import Any

from oncekey.core.requests import Renew, Verdict
from oncekey.engine import engine, engine_async
from oncekey.engine.keeper import Chore, keeper
from oncekey.policy import SECOND
from tests.patience import PATIENCE

LONG = 3600.0
"""Seconds of a lease that nobody loses by being slow."""
OFTEN = 0.05


def unhurried(patch: Any) -> None:
    """What a store did not answer is asked for again, however long it takes."""
    for module in (engine, engine_async):
        patch.setattr(module, "ASK_PATIENCE", PATIENCE)
        patch.setattr(module, "SETTLE_PATIENCE", PATIENCE)


def wait_for_rows(patch: Any, limit: str) -> None:
    """Sessions of a PostgreSQL store wait for a row so long; "0" is for ever."""
    from oncekey.stores.postgres import protocol

    said = protocol._BOUND.replace(b"'4s'", f"'{limit}'".encode())
    assert said != protocol._BOUND
    patch.setattr(protocol, "_BOUND", said)


def end_lease(store: Any, key: str, scope: str | None = None) -> None:
    """The lease of the attempt that has the record is over. Its owner is dead, or stands still."""
    record = store.get(scope, key)
    owner = {"token": record.token, "nonce": record.nonce}
    assert store.renew(Renew(scope, key, **owner, lease=1, ttl=3600 * SECOND)) is Verdict.DONE


def beat_often(patch: Callable[[object, str, object], None] = setattr) -> None:
    """A LONG lease of this process is renewed so often that a test can wait for it."""
    enqueue = keeper._enqueue

    def sooner(chore: Chore, delay: float) -> None:
        enqueue(chore, OFTEN if delay == LONG / 3 else delay)

    patch(keeper, "_enqueue", sooner)
