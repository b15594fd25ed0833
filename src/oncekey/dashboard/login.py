"""Log in with the token or with a ticket that works once, and log out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from oncekey.dashboard.access import ByToken, same_origin
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.site import Site, Visit, form_fields

if TYPE_CHECKING:
    from starlette.requests import Request


class Login:
    """The pages that need no session."""

    def __init__(self, site: Site, access: ByToken) -> None:
        self._site = site
        self._access = access

    async def show_token(self, request: Request) -> Response:
        """Check the token in the form, start a session and go back to the page asked for."""
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
        """Use the ticket up and start a session. The same ticket works only once."""
        if "prefetch" in request.headers.get("sec-purpose", ""):
            return Response(status_code=503)  # a browser that prefetches must not use the ticket up
        if not self._access.tickets.spend(request.query_params.get("ticket", "")):
            return self._site.refusal(
                request, "This link has been used, or was made too long ago. Make a new one."
            )
        return self._let_in(request, "/")

    async def leave(self, visit: Visit) -> Response:
        """End the session."""
        response = RedirectResponse(visit.address("/"), 303)
        self._access.leave(response, visit.request)
        return response

    def _let_in(self, request: Request, path: str) -> Response:
        response = RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)
        self._access.enter(response, request)
        return response


def _inside(path: str) -> str:
    """Return the path if it stays inside the dashboard, else the path of the first page."""
    plain = path.isascii() and path.isprintable() and path.startswith("/")
    outside = "\\" in path or path.startswith(("//", "/enter", "/login"))
    return path if plain and not outside else "/"
