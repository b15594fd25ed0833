"""Who may look and act: whoever has shown the token, or whom the application's callable admits."""

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
"""Seconds after which the token is asked for again."""
TICKET_LASTING: Final = 15 * 60


class Sessions:
    """Cookies that only somebody who knows the secret can make, and the proof in every form.

    A cookie is signed with a key made from the token, so that every process with the same token
    knows it, and none with another.
    """

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


Auth = Callable[[Request], bool | Awaitable[bool]]
SHORTEST: Final = 16
_BEARER: Final = "bearer "


class Admitted(Struct, frozen=True):
    """Somebody who may look; with the name of a session they may act."""

    name: str = ""
    new: bool = False
    """The browser does not know the name yet."""


class ByToken:
    """Whoever knows the token. A browser shows it once and has a cookie from then on."""

    asks = True
    """There is a form to show the token in."""

    def __init__(self, token: str) -> None:
        """The token must be one that nobody guesses."""
        if not isinstance(token, str) or len(token) < SHORTEST:
            msg = (
                f"the token of a dashboard is a string of at least {SHORTEST} characters that "
                f"nobody guesses; make one with secrets.token_urlsafe()"
            )
            raise ConfigurationError(msg)
        self.sessions: Final = Sessions(token)
        self.tickets: Final = Tickets()

    async def admit(self, request: Request) -> Admitted | None:
        """Whoever sends a cookie of ours, or the token itself, as programs do."""
        name = self.sessions.name_of(request.cookies.get(self.sessions.cookie, ""))
        if name is not None:
            return Admitted(name)
        said = request.headers.get("authorization", "")
        if said[: len(_BEARER)].lower() == _BEARER:
            return Admitted() if self.sessions.is_secret(said[len(_BEARER) :].strip()) else None
        return None

    def enter(self, response: Response, request: Request) -> None:
        """The browser that gets this response is known from now on."""
        set_cookie(response, request, self.sessions.cookie, self.sessions.begun())

    def leave(self, response: Response, request: Request) -> None:
        """The browser that gets this response is not known any more."""
        set_cookie(response, request, self.sessions.cookie, "", max_age=0)


class ByCallable:
    """Whom the application admits. The cookie is no proof of that: it only ties forms to pages."""

    asks = False

    def __init__(self, auth: Auth) -> None:
        """`auth(request)` answers True, at once or when awaited; everything else is a no."""
        if not callable(auth):
            msg = f"auth must be a callable that takes the request, not {auth!r}"
            raise ConfigurationError(msg)
        self._auth = auth
        # Any process of the application may get the form, and no secret is shared between them;
        # so a form is also asked where it comes from, see `same_origin`.
        self.sessions: Final = Sessions("")

    async def admit(self, request: Request) -> Admitted | None:
        """Whoever the callable says."""
        answer: Any = self._auth(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not True:
            return None
        name = request.cookies.get(self.sessions.cookie, "")
        return Admitted(name) if name else Admitted(secrets.token_urlsafe(18), new=True)

    def remember(self, response: Response, request: Request, admitted: Admitted) -> None:
        """The browser sends the name back with every form."""
        set_cookie(response, request, self.sessions.cookie, admitted.name)


def set_cookie(
    response: Response, request: Request, name: str, value: str, *, max_age: int | None = None
) -> None:
    """Scripts cannot read it, other sites cannot send it, and over https it never goes in clear."""
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
    """Whether the form was sent by a page of ours, as far as the browser tells.

    Other ports of this host are other sites here, though browsers send them the same cookies.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == request.headers["host"].lower()
