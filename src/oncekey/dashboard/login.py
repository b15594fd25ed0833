"""Getting in and out: with the token, or with a ticket that works once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from oncekey.dashboard.access import ByToken, same_origin
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.site import Site, Visit, form_fields

if TYPE_CHECKING:
    from starlette.requests import Request


class Login:
    """The pages in front of the door."""

    def __init__(self, site: Site, access: ByToken) -> None:
        """Those of a dashboard with a token."""
        self._site = site
        self._access = access

    async def show_token(self, request: Request) -> Response:
        """Whoever knows the token is let in, to where they were going."""
        try:
            form = await form_fields(request)
        except PageError as error:
            return self._site.sorry(request, error.status, str(error))
        if not same_origin(request):
            return self._site.sorry(request, 403, "This form was not made by this dashboard.")
        if not self._access.sessions.is_secret(form.get("token", "")):
            return self._site.refusal(request, "That is not the token of this dashboard.")
        return self._let_in(request, _inside(form.get("back", "")))

    async def show_ticket(self, request: Request) -> Response:
        """Whoever has the ticket is let in, and nobody with the same one after them."""
        if "prefetch" in request.headers.get("sec-purpose", ""):
            return Response(status_code=503)  # a browser that guesses must not spend it
        if not self._access.tickets.spend(request.query_params.get("ticket", "")):
            return self._site.refusal(
                request, "This link has been used, or was made too long ago. Make a new one."
            )
        return self._let_in(request, "/")

    async def leave(self, visit: Visit) -> Response:
        """They are known no more."""
        response = RedirectResponse(visit.address("/"), 303)
        self._access.leave(response, visit.request)
        return response

    def _let_in(self, request: Request, path: str) -> Response:
        response = RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)
        self._access.enter(response, request)
        return response


def _inside(path: str) -> str:
    """A path of the dashboard; whatever could lead elsewhere leads to its first page."""
    plain = path.isascii() and path.isprintable() and path.startswith("/")
    outside = "\\" in path or path.startswith(("//", "/enter", "/login"))
    return path if plain and not outside else "/"
