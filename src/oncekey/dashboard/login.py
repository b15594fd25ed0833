"""Log in with the token or with a ticket that works once, and log out."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from oncekey.dashboard.access import ByToken, Role, address_of, same_origin
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.site import Site, Visit, form_fields
from oncekey.inspection.text import now

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
        if pause := self._access.guesses.pause(address_of(request)):
            sentence = (
                f"Too many wrong tokens from your address. Wait {pause:.0f} s, then try again."
            )
            response = self._site.refusal(request, sentence, 429)
            response.headers["retry-after"] = str(ceil(pause))
            return response
        role = self._access.role_of(request, form.get("token", ""))
        if role is None:
            return self._site.refusal(request, "That is not the token of this dashboard.")
        user = form.get("name", "").strip()
        return self._let_in(request, _inside(form.get("back", "")), user, role)

    async def show_ticket(self, request: Request) -> Response:
        """Use the ticket up and start a session. The same ticket works only once."""
        if "prefetch" in request.headers.get("sec-purpose", ""):
            return Response(status_code=503)  # a browser that prefetches must not use the ticket up
        user = self._access.tickets.spend(request.query_params.get("ticket", ""))
        if user is not None:
            return self._let_in(request, "/", user, self._access.role)
        if await self._access.admit(request) is not None:  # the link again, in the same browser
            return RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
        return self._site.refusal(
            request, "This link has been used, or was made too long ago. Make a new one."
        )

    async def leave(self, visit: Visit) -> Response:
        """End the session."""
        response = RedirectResponse(visit.address("/"), 303)
        await self._access.leave(response, visit.request, visit.admitted)
        return response

    async def sessions(self, visit: Visit) -> Response:
        """Return the page that lists the sessions."""
        seen = sorted(self._access.seen.values(), key=lambda one: one.seen, reverse=True)
        return visit.page("sessions.html", sessions=seen, mine=visit.admitted.name, now=now())

    async def end(self, visit: Visit) -> Response:
        """End the session of another browser."""
        wanted = visit.form.get("session", "")
        for seen in list(self._access.seen.values()):
            if seen.digest == wanted:
                await self._access.end(seen.name)
        return RedirectResponse(visit.address("/sessions"), 303)

    def _let_in(self, request: Request, path: str, user: str, role: Role) -> Response:
        response = RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)
        self._access.enter(response, request, user, role)
        return response


def _inside(path: str) -> str:
    """Return the path if it stays inside the dashboard, else the path of the first page."""
    plain = path.isascii() and path.isprintable() and path.startswith("/")
    outside = "\\" in path or path.startswith(("//", "/enter", "/login"))
    return path if plain and not outside else "/"
