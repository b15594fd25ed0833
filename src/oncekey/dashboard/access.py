"""Access control: sessions by token or by the application's `auth`, cookies, tickets and forms."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import Request

from oncekey.compat import renew_after_fork
from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.responses import Response


LASTING: Final = 12 * 3600
"""The number of seconds after which the token is asked for again."""
TICKET_LASTING: Final = 15 * 60


class Sessions:
    """Make and check the signed session cookies, and the proof that every form carries.

    A cookie is signed with a key derived from the token, so every process with the same token
    accepts it, and no other does.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """Derive the signing key from the secret. The key does not reveal the secret."""
        self._key = hmac.digest(secret.encode(), b"oncekey dashboard", "sha256")
        self._secret = hashlib.sha256(secret.encode()).digest()
        self._clock = clock
        # Browsers send the cookies of a host to all its ports, so each dashboard has a cookie name
        # of its own.
        self.cookie: Final = f"oncekey_{self._sign('name')[:8]}"

    def is_secret(self, word: str) -> bool:
        """Return whether the word is the secret. The time it takes reveals nothing about it."""
        return hmac.compare_digest(hashlib.sha256(word.encode()).digest(), self._secret)

    def begun(self) -> str:
        """Return the value of a new session cookie."""
        body = f"{secrets.token_urlsafe(18)}.{int(self._clock()) + LASTING}"
        return f"{body}.{self._sign('session', body)}"

    def name_of(self, value: str) -> str | None:
        """Return the unique part of the cookie, or None if it has expired or we did not sign it."""
        body, _, signature = value.rpartition(".")
        if not self._is(signature, "session", body):
            return None
        name, _, until = body.partition(".")
        return name if int(until) > self._clock() else None

    def form(self, name: str) -> str:
        """Return the proof that every form of this session carries. No other site can read it."""
        return self._sign("form", name)

    def is_form(self, name: str, word: str) -> bool:
        """Return whether the proof in a form was made for this session."""
        return bool(name) and self._is(word, "form", name)

    def _sign(self, *words: str) -> str:
        return hmac.new(self._key, "\n".join(words).encode(), "sha256").hexdigest()

    def _is(self, signature: str, *words: str) -> bool:
        return hmac.compare_digest(signature.encode(), self._sign(*words).encode())


class Tickets:
    """Tickets that each let one person in, once, within 15 minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[bytes, float] = {}
        renew_after_fork(self)

    def issue(self) -> str:
        """Return a new ticket. Keep only its digest, and drop the digests of expired tickets."""
        word = secrets.token_urlsafe(32)
        with self._lock:
            present = self._clock()
            self._until = {one: until for one, until in self._until.items() if until > present}
            self._until[_digest(word)] = present + TICKET_LASTING
        return word

    def spend(self, word: str) -> bool:
        """Use the ticket up. Return whether it was valid."""
        with self._lock:
            return self._until.pop(_digest(word), 0.0) > self._clock()

    def after_fork(self) -> None:
        """Drop the tickets in the child, or two processes would accept the same one."""
        self._lock = threading.Lock()
        self._until = {}


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


Auth = Callable[[Request], bool | Awaitable[bool]]
SHORTEST: Final = 16
_BEARER: Final = "bearer "


class Admitted(Struct, frozen=True):
    """A request that may see pages. It may also act if it has the name of a session."""

    name: str = ""
    new: bool = False
    """Whether the browser does not have the name yet."""


class ByToken:
    """Admit requests that have the token. A browser shows it once and gets a cookie."""

    asks = True
    """Whether there is a form to enter the token."""

    def __init__(self, token: str) -> None:
        """Raise `ConfigurationError` if the token is too short to be secret."""
        if not isinstance(token, str) or len(token) < SHORTEST:
            msg = (
                f"the token of a dashboard is a string of at least {SHORTEST} characters that "
                f"nobody guesses; make one with secrets.token_urlsafe()"
            )
            raise ConfigurationError(msg)
        self.sessions: Final = Sessions(token)
        self.tickets: Final = Tickets()

    async def admit(self, request: Request) -> Admitted | None:
        """Return who sends our cookie or, as programs do, the token itself; else None."""
        name = self.sessions.name_of(request.cookies.get(self.sessions.cookie, ""))
        if name is not None:
            return Admitted(name)
        said = request.headers.get("authorization", "")
        if said[: len(_BEARER)].lower() == _BEARER:
            return Admitted() if self.sessions.is_secret(said[len(_BEARER) :].strip()) else None
        return None

    def enter(self, response: Response, request: Request) -> None:
        """Set a new session cookie on the response."""
        set_cookie(response, request, self.sessions.cookie, self.sessions.begun())

    def leave(self, response: Response, request: Request) -> None:
        """Delete the session cookie of the browser."""
        set_cookie(response, request, self.sessions.cookie, "", max_age=0)


class ByCallable:
    """Admit the requests that the application's `auth` accepts.

    The cookie proves nothing here. It only ties forms to the pages they came with.
    """

    asks = False

    def __init__(self, auth: Auth) -> None:
        """`auth(request)` returns True or an awaitable of True. Everything else is a refusal."""
        if not callable(auth):
            msg = f"auth must be a callable that takes the request, not {auth!r}"
            raise ConfigurationError(msg)
        self._auth = auth
        # Any process of the application may get the form, and they share no secret. So the origin
        # of a form is checked as well, see `same_origin`.
        self.sessions: Final = Sessions("")

    async def admit(self, request: Request) -> Admitted | None:
        """Return who is admitted, with a new name if the browser has none, or None if refused."""
        answer: Any = self._auth(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not True:
            return None
        name = request.cookies.get(self.sessions.cookie, "")
        return Admitted(name) if name else Admitted(secrets.token_urlsafe(18), new=True)

    def remember(self, response: Response, request: Request, admitted: Admitted) -> None:
        """Set the cookie with the name, which the browser sends back with every form."""
        set_cookie(response, request, self.sessions.cookie, admitted.name)


def set_cookie(
    response: Response, request: Request, name: str, value: str, *, max_age: int | None = None
) -> None:
    """Set a cookie that scripts cannot read, other sites cannot send, and https keeps encrypted."""
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=f"{request.scope.get('root_path', '')}/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def same_origin(request: Request) -> bool:
    """Return whether the form was sent by a page of ours, as far as the browser says.

    Other ports of this host are other origins here, though browsers send them the same cookies.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == request.headers["host"].lower()
