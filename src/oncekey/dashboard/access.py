"""Access control: sessions by token or by the application's `auth`, cookies, tickets and forms."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import logging
import secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from oncekey.compat import renew_after_fork
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.once import Once

if TYPE_CHECKING:
    from starlette.responses import Response


LASTING: Final = 12 * 3600
"""The number of seconds after which the token is asked for again."""
TICKET_LASTING: Final = 15 * 60


Role = Literal["operator", "viewer"]
"""An operator looks and changes records, a viewer only looks."""


class Session(Struct, frozen=True):
    """One browser that was let in."""

    name: str
    """The unique part of its cookie."""
    user: str
    until: int
    role: Role


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

    def begun(self, user: str = "", role: Role = "operator") -> str:
        """Return the value of a new session cookie."""
        named = urlsafe_b64encode(user[:LONGEST_NAME].encode()).decode().rstrip("=")
        body = f"{secrets.token_urlsafe(18)}.{int(self._clock()) + LASTING}.{named}.{role}"
        return f"{body}.{self._sign('session', body)}"

    def read(self, value: str) -> Session | None:
        """Return the session of a cookie, or None if it has expired or we did not sign it."""
        body, _, signature = value.rpartition(".")
        if not self._is(signature, "session", body):
            return None
        name, until, named, said = body.split(".")
        if int(until) <= self._clock():
            return None
        user = urlsafe_b64decode(named + "=" * (-len(named) % 4)).decode()
        return Session(name, user, int(until), "operator" if said == "operator" else "viewer")

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
        self._until: dict[bytes, tuple[float, str]] = {}
        renew_after_fork(self)

    def issue(self, user: str = "") -> str:
        """Return a new ticket. Keep only its digest, and drop the digests of expired tickets."""
        word = secrets.token_urlsafe(32)
        with self._lock:
            present = self._clock()
            self._until = {one: kept for one, kept in self._until.items() if kept[0] > present}
            self._until[_digest(word)] = present + TICKET_LASTING, user
        return word

    def spend(self, word: str) -> str | None:
        """Use the ticket up. Return the name of its user, or None if it was not valid."""
        with self._lock:
            until, user = self._until.pop(_digest(word), (0.0, ""))
            return user if until > self._clock() else None

    def after_fork(self) -> None:
        """Drop the tickets in the child, or two processes would accept the same one."""
        self._lock = threading.Lock()
        self._until = {}


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


class EndedSessions:
    """The sessions that somebody has ended, here or in another process, before their time.

    They are marked in the store, because the processes of an application share nothing else.
    """

    def __init__(self, once: Once) -> None:
        """Mark them in the store of `once`."""
        quiet = Once(once.store, observers=(), cache=False)
        self._once = quiet.options(scope="oncekey", label="dashboard", ttl=LASTING)
        self._here: dict[str, None] = {}
        self._looked: dict[str, float] = {}

    async def end(self, name: str) -> None:
        """End the session: at once here, in other processes within a few seconds."""
        self._here[name] = None
        while len(self._here) > _MOST:
            self._here.pop(next(iter(self._here)))
        try:
            await run_in_threadpool(self._once.run, _mark(name), lambda: True)
        except OncekeyError as error:
            log.warning("a session was ended in this process only: %s", error)

    async def has(self, name: str) -> bool:
        """Return whether the session was ended. Ask the store every few seconds at most."""
        if name in self._here:
            return True
        present = time.monotonic()
        if self._looked.get(name, 0.0) > present - _LOOKED_FOR:
            return False
        try:
            ended = await run_in_threadpool(self._once.get, _mark(name)) is not None
        except OncekeyError:
            return False  # a store that is away shows nothing either
        if len(self._looked) > _MOST:
            self._looked.clear()
        self._looked[name] = present
        if ended:
            self._here[name] = None
        return ended


def _mark(name: str) -> str:
    return f"ended session {_digest(name).hex()[:32]}"


class Guesses:
    """Wrong tokens by the address that they come from. After a few, the address has to wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, tuple[int, float]] = {}

    def pause(self, address: str) -> float:
        """Return for how many seconds no token from this address is looked at; 0 for none."""
        count, last = self._wrong.get(address, (0, 0.0))
        if count < _FREE_GUESSES:
            return 0.0
        pause = min(2.0 ** (count - _FREE_GUESSES), _LONGEST_PAUSE)
        return max(0.0, last + pause - self._clock())

    def wrong(self, address: str) -> int:
        """Count a wrong token. Return how many there were in a row."""
        if len(self._wrong) > _MOST:
            self._wrong.clear()
        count = self._wrong.get(address, (0, 0.0))[0] + 1
        self._wrong[address] = count, self._clock()
        return count

    def right(self, address: str) -> None:
        """Forget the wrong tokens of this address."""
        self._wrong.pop(address, None)


_MOST: Final = 1000
_LOOKED_FOR: Final = 5.0
_FREE_GUESSES: Final = 5
_LONGEST_PAUSE: Final = 60.0
LONGEST_NAME: Final = 100
log: Final = logging.getLogger("oncekey.dashboard")

Auth = Callable[[Request], bool | Awaitable[bool]]
User = Callable[[Request], str]
SHORTEST: Final = 16
_BEARER: Final = "bearer "


class Admitted(Struct, frozen=True):
    """A request that may see pages. It may also act if it has the name of a session."""

    name: str = ""
    new: bool = False
    """Whether the browser does not have the name yet."""
    user: str = ""
    """Who it is, as far as it is known, for the audit trail."""
    role: Role = "operator"


class SeenSession(Struct, frozen=True):
    """A session, where it was seen last, and when, in seconds since the epoch."""

    name: str
    user: str
    address: str
    since: int
    seen: int

    @property
    def digest(self) -> str:
        """What a page says instead of the name, which is a part of the cookie."""
        return _digest(self.name).hex()[:16]


class ByToken:
    """Admit requests that have the token. A browser shows it once and gets a cookie."""

    asks = True
    """Whether there is a form to enter the token."""

    def __init__(
        self, token: str, once: Once, *, view_token: str | None = None, role: Role = "operator"
    ) -> None:
        """`view_token` lets people in who may only look, and `role` is that of all others.

        Raise `ConfigurationError` if a token is too short to be secret, or if both are the same.
        """
        for word in (token, token if view_token is None else view_token):
            if not isinstance(word, str) or len(word) < SHORTEST:
                msg = (
                    f"the token of a dashboard is a string of at least {SHORTEST} characters that "
                    f"nobody guesses; make one with secrets.token_urlsafe()"
                )
                raise ConfigurationError(msg)
        if token == view_token:
            raise ConfigurationError("token and view_token must differ: they open different doors")
        self._viewers = None if view_token is None else Sessions(view_token)
        self.role: Final[Role] = role
        self.sessions: Final = Sessions(token)
        self.tickets: Final = Tickets()
        self.guesses: Final = Guesses()
        self.ended: Final = EndedSessions(once)
        self.seen: Final[dict[str, SeenSession]] = {}
        """The sessions that this process has seen, by name."""

    async def admit(self, request: Request) -> Admitted | None:
        """Return who sends our cookie or, as programs do, the token itself; else None."""
        session = self.sessions.read(request.cookies.get(self.sessions.cookie, ""))
        if session is not None and not await self.ended.has(session.name):
            self._see(session, request)
            role: Role = "viewer" if "viewer" in (session.role, self.role) else "operator"
            return Admitted(session.name, user=session.user, role=role)
        said = request.headers.get("authorization", "")
        if said[: len(_BEARER)].lower() == _BEARER and self.role_of(
            request, said[len(_BEARER) :].strip()
        ):
            return Admitted(user="a program with the token", role="viewer")
        return None

    def role_of(self, request: Request, word: str) -> Role | None:
        """Return the role that the token gives, or None if it is none.

        Log a wrong one; after some, look at none for a while.
        """
        address = address_of(request)
        if self.guesses.pause(address):
            return None
        full = self.sessions.is_secret(word)
        if full or (self._viewers is not None and self._viewers.is_secret(word)):
            self.guesses.right(address)
            return self.role if full else "viewer"
        log.warning(
            "wrong token for the dashboard from %s, %d in a row",
            address,
            self.guesses.wrong(address),
        )
        return None

    def enter(self, response: Response, request: Request, user: str, role: Role) -> None:
        """Set a new session cookie on the response."""
        set_cookie(response, request, self.sessions.cookie, self.sessions.begun(user, role))

    async def leave(self, response: Response, request: Request, admitted: Admitted) -> None:
        """End the session, and delete the cookie of the browser."""
        await self.end(admitted.name)
        set_cookie(response, request, self.sessions.cookie, "", max_age=0)

    async def end(self, name: str) -> None:
        """End a session of any browser."""
        self.seen.pop(name, None)
        await self.ended.end(name)

    def _see(self, session: Session, request: Request) -> None:
        present = time.time()
        old = self.seen.get(session.name)
        self.seen[session.name] = SeenSession(
            session.name,
            session.user,
            address_of(request),
            session.until - LASTING,
            int(present),
        )
        if old is None and len(self.seen) > _MOST:
            self.seen.pop(next(iter(self.seen)))
        for name in [one for one, seen in self.seen.items() if seen.since + LASTING < present]:
            del self.seen[name]


class ByCallable:
    """Admit the requests that the application's `auth` accepts.

    The cookie proves nothing here. It only ties forms to the pages they came with.
    """

    asks = False

    def __init__(
        self,
        auth: Auth,
        user: User | None = None,
        secret: str | None = None,
        may_change: Auth | None = None,
    ) -> None:
        """`auth(request)` returns True or an awaitable of True. Everything else is a refusal.

        `user(request)` returns the name for the audit trail. Forms are signed with `secret`, which
        all processes must share that serve the dashboard; without it each process has its own.
        `may_change(request)` returns True for an operator; without it everybody is one.
        """
        for name, given in (("auth", auth), ("may_change", may_change or auth)):
            if not callable(given):
                msg = f"{name} must be a callable that takes the request, not {given!r}"
                raise ConfigurationError(msg)
        self._auth = auth
        self._may_change = may_change
        self._user = user or _user_of
        self.sessions: Final = Sessions(secret or secrets.token_urlsafe(32))

    async def admit(self, request: Request) -> Admitted | None:
        """Return who is admitted, with a new name if the browser has none, or None if refused."""
        if not await _says_yes(self._auth, request):
            return None
        name = request.cookies.get(self.sessions.cookie, "")
        user = str(self._user(request))[:LONGEST_NAME]
        changes = self._may_change is None or await _says_yes(self._may_change, request)
        return Admitted(
            name or secrets.token_urlsafe(18),
            new=not name,
            user=user,
            role="operator" if changes else "viewer",
        )

    def remember(self, response: Response, request: Request, admitted: Admitted) -> None:
        """Set the cookie with the name, which the browser sends back with every form."""
        set_cookie(response, request, self.sessions.cookie, admitted.name)


async def _says_yes(asked: Auth, request: Request) -> bool:
    answer: Any = asked(request)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer is True


def _user_of(request: Request) -> str:
    """Return the name of the user that the AuthenticationMiddleware of Starlette has found."""
    user = request.scope.get("user")
    return str(getattr(user, "display_name", "") or "")


def address_of(request: Request) -> str:
    """Return the address of the client; of IPv6 the part that one customer has."""
    host = request.client.host if request.client is not None else "unknown"
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else f"{ip_network((host, 64), strict=False)}"  # noqa: PLR2004 - the version of IPv4


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
