"""The dashboard as an ASGI application: its routes, its settings and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from oncekey.dashboard import actions, pages
from oncekey.dashboard import outbox as outbox_pages
from oncekey.dashboard.access import SHORTEST, Auth, ByCallable, ByToken, Role, User
from oncekey.dashboard.counter import CallCounter
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.login import Login
from oncekey.dashboard.security import LOOPBACK, AllowedHosts, HostGuard
from oncekey.dashboard.site import PageHandler, Site
from oncekey.errors import ConfigurationError
from oncekey.once import Once
from oncekey.outbox.outbox import own_connections

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

_PAGES: Final[tuple[tuple[str, str, PageHandler], ...]] = (
    ("GET", "/", pages.overview),
    ("GET", "/records", pages.records),
    ("GET", "/record", pages.record),
    ("GET", "/labels", pages.labels),
    ("GET", "/dead-letters", pages.dead_letters),
    ("POST", "/dead-letters/free", actions.free_letter),
    ("GET", "/outbox", outbox_pages.outbox),
    ("GET", "/outbox/letter", outbox_pages.letter),
    ("POST", "/outbox/decide", outbox_pages.decide),
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
        view_token: str | None = None,
        auth: Auth | None = None,
        may_change: Auth | None = None,
        user: User | None = None,
        secret: str | None = None,
        read_only: bool = False,
        show_results: bool = False,
        trace_url: str | None = None,
        inbox: str | None = None,
        outbox: str | None = None,
        allowed_hosts: Iterable[str] = LOOPBACK,
        watch: bool = True,
    ) -> None:
        """Give exactly one of `token` and `auth`, which decides who may look; there is no default.

        With `token`, those who log in with `view_token` instead may look, but not change anything.
        `auth(request)` returns True if the request may look, or an awaitable of True. With it,
        `may_change(request)` says in the same way who may change records (by default everybody
        who may look), `user(request)` returns who that is, for the audit trail, and `secret` signs
        the forms: give the same one to all processes that serve the dashboard.
        With `read_only` nobody changes anything.
        `show_results` shows results, notes and errors, which may hold secrets.
        `trace_url` is the address of a trace, with `{trace}` where its id belongs, for records that
        keep one. `inbox` is the URL of the database of an `Inbox`, whose dead letters are listed,
        and `outbox` that of an `Outbox`, of which it shows what waits and what is dead.
        `allowed_hosts` are the host names that the dashboard is reached under.
        `watch` counts the calls of this process; switch it off in a process that makes none.
        """
        if not isinstance(once, Once):
            raise ConfigurationError(f"a dashboard shows the records of a Once, not of {once!r}")
        _check_store(once)
        for name, given in (("read_only", read_only), ("show_results", show_results)):
            if not isinstance(given, bool):
                raise ConfigurationError(f"{name} must be True or False, not {given!r}")
        if trace_url is not None and not _is_trace_url(trace_url):
            msg = (
                f"trace_url is an address with {{trace}} in it, such as "
                f"'https://jaeger.example.com/trace/{{trace}}', not {trace_url!r}"
            )
            raise ConfigurationError(msg)
        if outbox is not None:
            own_connections(outbox).close()  # raises for what can have none
        access = _access_of(once, token, auth, view_token, may_change, user, secret, read_only)
        counter = CallCounter() if watch else None
        if counter is not None:
            _join(once, counter)
        self._site = Site(
            once,
            access,
            counter=counter,
            show_results=show_results,
            trace_url=trace_url,
            inbox=inbox,
            outbox=outbox,
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


def _access_of(  # noqa: PLR0917 - as the user passes them
    once: Once,
    token: str | None,
    auth: Auth | None,
    view_token: str | None,
    may_change: Auth | None,
    user: User | None,
    secret: str | None,
    read_only: bool,  # noqa: FBT001 - as the others
) -> ByToken | ByCallable:
    """Return who may do what. Raise `ConfigurationError` if the arguments do not fit together."""
    if (token is None) == (auth is None):
        msg = (
            "a dashboard needs token=... or auth=..., exactly one of them: whoever reaches it "
            "could otherwise read and change every record"
        )
        raise ConfigurationError(msg)
    if token is not None:
        if user is not None or secret is not None:
            raise ConfigurationError("user= and secret= belong to auth=; a token has its own")
        if may_change is not None:
            raise ConfigurationError("may_change= belongs to auth=; a token has a view_token=")
        role: Role = "viewer" if read_only else "operator"
        return ByToken(token, once, view_token=view_token, role=role)
    if view_token is not None:
        raise ConfigurationError("view_token= belongs to token=; with auth= use may_change=")
    if secret is not None and len(secret) < SHORTEST:
        raise ConfigurationError(f"a secret has at least {SHORTEST} characters")
    changes = (lambda _: False) if read_only else may_change
    return ByCallable(auth, user, secret, changes)  # type: ignore[arg-type]  # it checks


def _routes(site: Site) -> Iterable[BaseRoute]:
    for method, path, page in _PAGES:
        changes = method == "POST" or page is actions.ask_forget
        yield Route(path, site.behind_the_door(page, changes=changes), methods=[method])
    yield Route("/static/{name}", site.static.answer)
    if isinstance(site.access, ByToken):
        login = Login(site, site.access)
        yield Route("/login", login.show_token, methods=["POST"])
        yield Route("/enter", login.show_ticket)
        leave = site.behind_the_door(login.leave, changes=False)
        yield Route("/logout", leave, methods=["POST"])
        sessions = site.behind_the_door(login.sessions, changes=True)  # addresses of others
        yield Route("/sessions", sessions, methods=["GET"])
        end = site.behind_the_door(login.end, changes=True)
        yield Route("/sessions/end", end, methods=["POST"])


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


def _is_trace_url(url: object) -> bool:
    if not isinstance(url, str) or url.count("{trace}") != 1:
        return False
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and "{" not in parts.netloc
