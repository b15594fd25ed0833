"""The dashboard as an ASGI application: its routes, its settings and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from oncekey.dashboard import actions, pages
from oncekey.dashboard.access import SHORTEST, Auth, ByCallable, ByToken, User
from oncekey.dashboard.counter import CallCounter
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.login import Login
from oncekey.dashboard.security import LOOPBACK, AllowedHosts, HostGuard
from oncekey.dashboard.site import PageHandler, Site
from oncekey.errors import ConfigurationError
from oncekey.once import Once

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

_PAGES: Final[tuple[tuple[str, str, PageHandler], ...]] = (
    ("GET", "/", pages.overview),
    ("GET", "/records", pages.records),
    ("GET", "/record", pages.record),
    ("GET", "/doctor", pages.doctor),
    ("GET", "/audit", pages.audit),
    ("GET", "/metrics", pages.metrics),
    ("GET", "/record/forget", actions.ask_forget),
    ("POST", "/record/forget", actions.forget),
    ("POST", "/records/change", actions.change_many),
    ("POST", "/record/resolve", actions.resolve),
)
"""Every page that needs a session: method, path and handler."""


class Dashboard:
    """Show the records of a `Once` in a browser, to users with the token or admitted by `auth`.

    It is an ASGI application: mount it in Starlette or FastAPI, or serve it by itself.
    """

    def __init__(
        self,
        once: Once,
        *,
        token: str | None = None,
        auth: Auth | None = None,
        user: User | None = None,
        secret: str | None = None,
        show_results: bool = False,
        allowed_hosts: Iterable[str] = LOOPBACK,
        watch: bool = True,
    ) -> None:
        """Give exactly one of `token` and `auth`, which decides who may look; there is no default.

        `auth(request)` returns True if the request may look, or an awaitable of True. With it,
        `user(request)` returns who that is, for the audit trail, and `secret` signs the forms: give
        the same one to all processes that serve the dashboard.
        `show_results` shows results, notes and errors, which may hold secrets.
        `allowed_hosts` are the host names that the dashboard is reached under.
        `watch` counts the calls of this process; switch it off in a process that makes none.
        """
        if not isinstance(once, Once):
            raise ConfigurationError(f"a dashboard shows the records of a Once, not of {once!r}")
        if (token is None) == (auth is None):
            msg = (
                "a dashboard needs token=... or auth=..., exactly one of them: whoever reaches it "
                "could otherwise read and change every record"
            )
            raise ConfigurationError(msg)
        _check_store(once)
        if not isinstance(show_results, bool):
            raise ConfigurationError(f"show_results must be True or False, not {show_results!r}")
        if token is not None and (user is not None or secret is not None):
            raise ConfigurationError("user= and secret= belong to auth=; a token has its own")
        if secret is not None and len(secret) < SHORTEST:
            raise ConfigurationError(f"a secret has at least {SHORTEST} characters")
        access = (
            ByToken(token, once) if token is not None else ByCallable(auth, user, secret)  # type: ignore[arg-type]  # it checks
        )
        counter = CallCounter() if watch else None
        if counter is not None:
            _join(once, counter)
        self._site = Site(
            once,
            access,
            counter=counter,
            show_results=show_results,
            name=_name(once),
        )
        app = Starlette(
            routes=list(_routes(self._site)),
            exception_handlers={HTTPException: self._strange, PageError: self._page_error},
        )
        self._guarded = HostGuard(app, AllowedHosts(allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._guarded(scope, receive, send)

    def ticket(self, user: str = "") -> str:
        """Return a ticket that lets one browser in, once, within 15 minutes: `/enter?ticket=...`.

        `user` is the name of the person, for the audit trail. Raise `ConfigurationError` if the
        dashboard has `auth`.
        """
        access = self._site.access
        if not isinstance(access, ByToken):
            raise ConfigurationError("a dashboard with auth=... lets people in by that alone")
        return access.tickets.issue(user)

    async def _strange(self, request: Request, error: Exception) -> Response:
        """Answer an unknown path or method, or a 401 or 403 that `auth` has raised."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        if status in (401, 403):
            return self._site.refusal(request)
        return self._site.sorry(request, status, "There is no such page.")

    async def _page_error(self, request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, PageError) else 500
        return self._site.sorry(request, status, str(error))


def _routes(site: Site) -> Iterable[BaseRoute]:
    for method, path, page in _PAGES:
        yield Route(path, site.behind_the_door(page), methods=[method])
    yield Route("/static/{name}", site.static.answer)
    if isinstance(site.access, ByToken):
        login = Login(site, site.access)
        yield Route("/login", login.show_token, methods=["POST"])
        yield Route("/enter", login.show_ticket)
        yield Route("/logout", site.behind_the_door(login.leave), methods=["POST"])
        yield Route("/sessions", site.behind_the_door(login.sessions), methods=["GET"])
        yield Route("/sessions/end", site.behind_the_door(login.end), methods=["POST"])


def _check_store(once: Once) -> None:
    try:
        once.store  # noqa: B018 - asking for it is the check
    except ConfigurationError:
        msg = (
            "a dashboard reads on threads, and this Once has an async store; "
            "give the dashboard a Once of its own with the URL of that store"
        )
        raise ConfigurationError(msg) from None


def _join(once: Once, counter: CallCounter) -> None:
    """Add the counter to the observers of this `Once`."""
    once.core.observers.add(counter)


def _name(once: Once) -> str:
    """Return the kind of the store. Its address is not shown, because it may hold a password."""
    return type(once.store).__name__.removesuffix("Store") or "store"
