"""Run the doctor at the first use of a store, and log what it finds or refuse the call.

A store that does not answer is examined as soon as it does; the call itself raises the error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from time import monotonic
from typing import Any, Final, Literal

from oncekey.compat import renew_after_fork
from oncekey.doctor import Finding, examine, examine_async
from oncekey.errors import ConfigurationError, OncekeyError

Mode = Literal["warn", "refuse"]

AGAIN: Final = 30.0
"""The number of seconds before a store that was dangerous or did not answer is examined again."""
_log = logging.getLogger("oncekey")


class StartupCheck:
    """Examine a store once in every process, before the first call that uses it."""

    def __init__(self, mode: Mode, store: Any, *, ttl: float) -> None:
        """`$ONCEKEY_RETRY_HORIZON` is how long after a call its duplicates may come."""
        if mode not in ("warn", "refuse"):
            msg = f'doctor must be "warn", "refuse" or None, but it is {mode!r}'
            raise ConfigurationError(msg)
        self._mode = mode
        self._store = store
        self._asked: dict[str, Any] = {
            "ttl": ttl,
            "retry_horizon": os.environ.get("ONCEKEY_RETRY_HORIZON") or None,
        }
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start again in the child: examine the store before its first call."""
        self._lock = threading.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._healthy = False
        self._refusal: ConfigurationError | None = None
        self._due = -AGAIN

    def check(self) -> bool:
        """Examine the store if that is due. Return whether it needs no further examination.

        Raise `ConfigurationError` while the store is dangerous and the mode is "refuse".
        """
        with self._lock:
            if self._may_look():
                try:
                    self._judge(examine(self._store, **self._asked))
                except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the call
                    self._missed(error)
        return self._verdict()

    async def check_async(self) -> bool:
        """Do the same for coroutines. Concurrent ones wait for one examination."""
        if not inspect.iscoroutinefunction(getattr(self._store, "claim", None)):
            return await asyncio.to_thread(self.check)
        if self._looking is None and self._may_look():
            self._looking = asyncio.ensure_future(self._look())
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return self._verdict()

    async def _look(self) -> None:
        try:
            self._judge(await examine_async(self._store, **self._asked))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the call
            self._missed(error)
        finally:
            self._looking = None

    def _may_look(self) -> bool:
        return not self._healthy and monotonic() >= self._due

    def _judge(self, findings: list[Finding]) -> None:
        self._due = monotonic() + AGAIN
        dangers = [finding for finding in findings if finding.severity == "danger"]
        refused = self._mode == "refuse" and bool(dangers)
        self._refusal = _refusal(dangers) if refused else None
        self._healthy = not refused
        for finding in findings:
            if finding.severity == "warning" or (finding.severity == "danger" and not refused):
                _log.warning("doctor: %s", finding.sentence)

    def _missed(self, error: Exception) -> None:
        self._due = monotonic() + AGAIN
        if not isinstance(
            error, OncekeyError
        ):  # otherwise the call gets the same error and raises it
            _log.error("doctor: the store could not be examined", exc_info=error)

    def _verdict(self) -> bool:
        if self._refusal is not None:
            raise ConfigurationError(*self._refusal.args)
        return self._healthy


def _refusal(dangers: list[Finding]) -> ConfigurationError:
    said = "; and ".join(f"{finding.check}: {finding.sentence}" for finding in dangers)
    return ConfigurationError(f"the doctor refuses this store: {said}")
