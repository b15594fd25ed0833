"""Who has shown the token: signed cookies, the proof in every form, and tickets that work once.

A cookie is signed with a key made from the token, so that every process with the same token knows
it, and none with another.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from oncekey.compat import renew_after_fork

LASTING: Final = 12 * 3600
"""Seconds after which the token is asked for again."""
TICKET_LASTING: Final = 15 * 60


class Sessions:
    """Cookies that only somebody who knows the secret can make."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """The key comes from the secret, and does not reveal it."""
        self._key = hmac.digest(secret.encode(), b"oncekey dashboard", "sha256")
        self._secret = hashlib.sha256(secret.encode()).digest()
        self._clock = clock
        # Browsers do not tell the ports of one host apart: each dashboard has a name of its own.
        self.cookie: Final = f"oncekey_{self._sign('name')[:8]}"

    def is_secret(self, word: str) -> bool:
        """Whether it is the secret; how long that takes says nothing about it."""
        return hmac.compare_digest(hashlib.sha256(word.encode()).digest(), self._secret)

    def begun(self) -> str:
        """The value of a new cookie."""
        body = f"{secrets.token_urlsafe(18)}.{int(self._clock()) + LASTING}"
        return f"{body}.{self._sign('session', body)}"

    def name_of(self, value: str) -> str | None:
        """What is unique in a cookie of ours; None for one that is over or not ours."""
        body, _, signature = value.rpartition(".")
        if not self._is(signature, "session", body):
            return None
        name, _, until = body.partition(".")
        return name if int(until) > self._clock() else None

    def form(self, name: str) -> str:
        """What every form of this session carries. No other site can read it."""
        return self._sign("form", name)

    def is_form(self, name: str, word: str) -> bool:
        """Whether the form was made for this session."""
        return bool(name) and self._is(word, "form", name)

    def _sign(self, *words: str) -> str:
        return hmac.new(self._key, "\n".join(words).encode(), "sha256").hexdigest()

    def _is(self, signature: str, *words: str) -> bool:
        return hmac.compare_digest(signature.encode(), self._sign(*words).encode())


class Tickets:
    """Words that let one person in, once, soon."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """There is no ticket yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[bytes, float] = {}
        renew_after_fork(self)

    def issue(self) -> str:
        """A new one. Only its digest is kept, and those that are too old are not."""
        word = secrets.token_urlsafe(32)
        with self._lock:
            present = self._clock()
            self._until = {one: until for one, until in self._until.items() if until > present}
            self._until[_digest(word)] = present + TICKET_LASTING
        return word

    def spend(self, word: str) -> bool:
        """Whether it was good; it is not any more."""
        with self._lock:
            return self._until.pop(_digest(word), 0.0) > self._clock()

    def after_fork(self) -> None:
        """The tickets stay with the parent, or two processes would take the same one."""
        self._lock = threading.Lock()
        self._until = {}


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()
