"""What all pages share: forms, sessions, templates, and the check before every page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from oncekey.dashboard.access import Admitted, ByCallable, ByToken, same_origin
from oncekey.dashboard.counter import CallCounter
from oncekey.dashboard.errors import PageError, status_of
from oncekey.dashboard.html import StaticFiles, Templates
from oncekey.dashboard.queries import Examinations, Queries
from oncekey.errors import OncekeyError
from oncekey.inspection.listing import where
from oncekey.once import Once

LARGEST: Final = 2 * 1024 * 1024
"""The most bytes of a form. A result may be as large as one that is kept, plus its escapes."""
MOST_FIELDS: Final = 200
_KIND: Final = "application/x-www-form-urlencoded"


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields by name; if a name repeats, its last value counts.

    Raise `PageError` if the body is no form, too large, or cannot be read.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise PageError(415, "This page takes the forms of the dashboard and nothing else.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise PageError(413, "That is more than a form of the dashboard holds.")
    try:
        found = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise PageError(400, "The form cannot be read.") from None
    return dict(found)


class Visit:
    """One request that was admitted."""

    def __init__(self, site: Site, request: Request, admitted: Admitted) -> None:
        """`form` is empty until the site has checked the form of the request."""
        self.site = site
        self.request = request
        self.admitted = admitted
        self.form: dict[str, str] = {}

    def page(self, template: str, status: int = 200, **facts: Any) -> Response:
        """Return a rendered page for this request."""
        templates = self.site.templates
        return templates.page(self.request, template, status, self.admitted, **facts)

    def address(self, path: str) -> str:
        """Return the path of a page of the dashboard as a browser asks for it."""
        return f"{self.request.scope.get('root_path', '')}{path}"


PageHandler = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def _must_operate(admitted: Admitted) -> None:
    if admitted.role != "operator":
        raise PageError(403, "You may look here, but not change anything.")


class Site:
    """The objects that all pages use."""

    def __init__(
        self,
        once: Once,
        access: ByToken | ByCallable,
        *,
        counter: CallCounter | None,
        show_results: bool,
        trace_url: str | None,
        inbox: str | None,
        outbox: str | None,
    ) -> None:
        """Without a counter the calls of this process are not counted."""
        self.once: Final = once
        self.access: Final = access
        self.counter: Final = counter
        self.show_results: Final = show_results
        self.trace_url: Final = trace_url
        self.inbox: Final = inbox
        self.outbox: Final = outbox
        self.static: Final = StaticFiles()
        kind = type(once.store).__name__.removesuffix("Store") or "store"
        self.templates: Final = Templates(
            access,
            version=self.static.version,
            store_name=kind,
            store_where=where(once.store),
            has_inbox=inbox is not None,
            has_outbox=outbox is not None,
        )
        self.queries: Final = Queries(once)
        self.examinations: Final = Examinations(once)

    def behind_the_door(self, page: PageHandler, *, changes: bool) -> Endpoint:
        """Return an endpoint that admits the request and checks its form before it calls the page.

        A page that `changes` something is for operators only. Errors become pages with a sentence.
        """

        async def endpoint(request: Request) -> Response:
            admitted = await self.access.admit(request)
            if admitted is None:
                return self.refusal(request)
            visit = Visit(self, request, admitted)
            try:
                if changes:
                    _must_operate(admitted)
                if request.method == "POST":
                    visit.form = await self._checked(request, admitted)
                return await page(visit)
            except PageError as error:
                return self.sorry(request, error.status, str(error), admitted)
            except OncekeyError as error:
                return self.sorry(request, status_of(error), str(error), admitted)

        return endpoint

    async def _checked(self, request: Request, admitted: Admitted) -> dict[str, str]:
        """Return the fields of the form. Raise `PageError` if it was not made for this session."""
        form = await form_fields(request)
        proof = form.pop("form", "")
        if not same_origin(request) or not self.access.sessions.is_form(admitted.name, proof):
            raise PageError(
                403,
                "This form was not made by this dashboard for you. Nothing was changed. Open the "
                "page again; if several processes serve it with auth=, give them one secret=.",
            )
        return form

    def refusal(self, request: Request, sentence: str = "", status: int | None = None) -> Response:
        """Return the page for a request that was not admitted, with a form for the token."""
        back = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        if asked := request.scope.get("query_string", b""):
            back += f"?{asked.decode('latin-1')}"
        # A link on another site comes without our cookie; when our own page requests it again, the
        # cookie is sent. The second request says that it comes from here, so this happens once.
        again = request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site"
        return self.templates.page(
            request,
            "login.html",
            status or (401 if self.access.asks else 403),
            sentence=sentence,
            back=back if request.method == "GET" else "/",
            again=again,
        )

    def sorry(
        self, request: Request, status: int, sentence: str, admitted: Admitted | None = None
    ) -> Response:
        """Return the page that says what is wrong."""
        return self.templates.page(
            request, "sorry.html", status, admitted, code=status, sentence=sentence
        )
