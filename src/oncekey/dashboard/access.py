"""Who may look and act: whoever has shown the token, or whom the application's callable admits."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.requests import Request

from oncekey.dashboard.sessions import Sessions, Tickets
from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.responses import Response

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
