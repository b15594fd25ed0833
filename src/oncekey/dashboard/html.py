"""Render templates and serve static files. Every value is escaped, so records cannot be markup."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, Response

from oncekey.core.key import stored_key
from oncekey.dashboard import charts
from oncekey.dashboard.access import Admitted, ByCallable, ByToken
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.figures import HEIGHT, WIDTH
from oncekey.dashboard.queries import severity_tone
from oncekey.dashboard.text import beside_or_now, lines, number, of_bytes, shown
from oncekey.inspection.text import done_by_hand, iso, moment, printable
from oncekey.stores.browse import STATUSES

if TYPE_CHECKING:
    from starlette.requests import Request


_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFiles:
    """The static files, under URLs that change with their content. They need no session."""

    def __init__(self) -> None:
        """Read the files from the package."""
        folder = resources.files("oncekey.dashboard") / "static"
        self._files = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
        joined = b"".join(self._files[name] for name in sorted(self._files))
        self.version: Final = hashlib.sha256(joined).hexdigest()[:12]

    async def answer(self, request: Request) -> Response:
        """Return the file. Raise `PageError` if there is none."""
        name = request.path_params["name"]
        data = self._files.get(name)
        if data is None:
            raise PageError(404, "There is no such file.")
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "content-type": _KINDS[name.rpartition(".")[2]],
        }
        return Response(data, headers=headers)


class Templates:
    """The templates of the package, and what all pages have in common."""

    def __init__(self, access: ByToken | ByCallable, **everywhere: Any) -> None:
        """`everywhere` are the variables that every template has."""
        self._access = access
        self._environment = Environment(
            loader=PackageLoader("oncekey.dashboard"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            shown=shown,
            visible=printable,
            lines=lines,
            number=number,
            size=of_bytes,
            iso=iso,
            moment=moment,
            beside=beside_or_now,
            tone=severity_tone,
            done_by_hand=done_by_hand,
            part=lambda text: stored_key(None, text),
        )
        self._environment.globals.update(
            **everywhere,
            STATUSES=STATUSES,
            drawing_width=WIDTH,
            drawing_height=HEIGHT,
            chart_width=charts.WIDTH,
            chart_height=charts.HEIGHT,
        )

    def page(
        self,
        request: Request,
        template: str,
        status: int = 200,
        admitted: Admitted | None = None,
        **facts: Any,
    ) -> HTMLResponse:
        """Return the rendered page. Navigation and working forms are only for `admitted`."""
        form: Final = self._access.sessions.form(admitted.name) if admitted else ""
        text = self._environment.get_template(template).render(
            root=request.scope.get("root_path", ""),
            admitted=admitted is not None,
            asks=self._access.asks,
            may_change=admitted is not None and admitted.role == "operator",
            form=form,
            **facts,
        )
        response = HTMLResponse(text, status)
        if admitted is not None and admitted.new and isinstance(self._access, ByCallable):
            self._access.remember(response, request, admitted)
        return response
