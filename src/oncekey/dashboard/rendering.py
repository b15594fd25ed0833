"""Templates become pages. Everything is escaped: nothing that is stored is ever markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse

from oncekey.dashboard import times
from oncekey.dashboard.access import Admitted, ByCallable, ByToken
from oncekey.dashboard.checkups import tone_of
from oncekey.dashboard.drawing import HEIGHT, WIDTH
from oncekey.dashboard.text import lines, number, of_bytes, shown, visible
from oncekey.stores.browse import STATUSES

if TYPE_CHECKING:
    from starlette.requests import Request


class Rendering:
    """The templates of the package, and what all pages have in common."""

    def __init__(self, access: ByToken | ByCallable, **everywhere: Any) -> None:
        """`everywhere` is what every page may name."""
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
            visible=visible,
            lines=lines,
            number=number,
            size=of_bytes,
            iso=times.iso,
            moment=times.moment,
            beside=times.beside,
            tone=tone_of,
        )
        self._environment.globals.update(
            **everywhere,
            STATUSES=STATUSES,
            drawing_width=WIDTH,
            drawing_height=HEIGHT,
        )

    def page(
        self,
        request: Request,
        template: str,
        status: int = 200,
        admitted: Admitted | None = None,
        **facts: Any,
    ) -> HTMLResponse:
        """The page. Only who is admitted gets the way around and forms that work."""
        form: Final = self._access.sessions.form(admitted.name) if admitted else ""
        text = self._environment.get_template(template).render(
            root=request.scope.get("root_path", ""),
            admitted=admitted is not None,
            asks=self._access.asks,
            form=form,
            **facts,
        )
        response = HTMLResponse(text, status)
        if admitted is not None and admitted.new and isinstance(self._access, ByCallable):
            self._access.remember(response, request, admitted)
        return response
