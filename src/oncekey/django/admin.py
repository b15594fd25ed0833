"""The records in Django's admin: a list, the life of one, and what a person may decide about it."""

from __future__ import annotations

from typing import Any, ClassVar, Final
from urllib.parse import urlencode

import msgspec
from django.contrib import (  # type: ignore[import-untyped]  # Django brings no types
    admin,
    messages,
)
from django.contrib.admin.utils import (  # type: ignore[import-untyped]  # Django brings no types
    quote,
    unquote,
)
from django.core.exceptions import (  # type: ignore[import-untyped]  # Django brings no types
    PermissionDenied,
)
from django.http import (  # type: ignore[import-untyped]  # Django brings no types
    Http404,
    HttpResponseRedirect,
)
from django.template.response import (  # type: ignore[import-untyped]  # Django brings no types
    TemplateResponse,
)
from django.urls import (  # type: ignore[import-untyped]  # Django brings no types
    path,
    reverse,
)

from oncekey.core.key import stored_key
from oncekey.core.record import Record
from oncekey.django.models import Record as RecordModel
from oncekey.errors import OncekeyError
from oncekey.http.django import project_once
from oncekey.inspection.actions import ENDINGS, ending, needs_force, state_of
from oncekey.inspection.listing import audit_of, fill_page, find_record, time_of
from oncekey.inspection.text import status_word
from oncekey.once import Once
from oncekey.stores.browse import STATUSES, RecordQuery, parse_stored_key

_TIMES: Final = ("created", "started", "updated", "finished", "lease_end", "expires")
_LIST: Final = "admin:oncekey_record_changelist"
_DETAIL: Final = "admin:oncekey_record_change"


@admin.register(RecordModel)
class RecordAdmin(admin.ModelAdmin):  # type: ignore[misc]  # Django brings no types
    """The records, read through the store, so that they are as every process sees them."""

    actions: ClassVar[list[Any]] = []

    def get_urls(self) -> list[Any]:
        """Return the addresses of the list and of a record."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="oncekey_record_changelist"),
            path("<path:object_id>/", view(self.change_view), name="oncekey_record_change"),
        ]

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 - nobody has it
        """Return False: only a claim makes a record."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Return a page of the list, the newest first where the store has that order."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = {name: request.GET.get(name, "").strip() for name in ("status", "scope", "key")}
        query = RecordQuery(
            status=asked["status"] if asked["status"] in STATUSES else None,
            scope=asked["scope"] or None,
            any_scope=not asked["scope"],
            prefix=asked["key"],
            after=request.GET.get("after") or None,
        )
        facts: dict[str, Any] = {"asked": asked, "statuses": STATUSES, "rows": [], "next": ""}
        try:
            page = fill_page(project_once().store, query)
        except OncekeyError as error:
            messages.error(request, str(error))
        else:
            facts["rows"] = [
                (_address(one), one, status_word(one, page.now), one.at("created"))
                for one in page.records
            ]
            if page.after is not None:
                facts["next"] = urlencode({**asked, "after": page.after})
        return self._page(request, "oncekey/records.html", "Records", facts | (extra_context or {}))

    def change_view(
        self,
        request: Any,
        object_id: str,
        form_url: str = "",  # noqa: ARG002 - as Django calls it
        extra_context: Any = None,
    ) -> Any:
        """Return the page of a record, or do what a person has decided about it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        once = project_once()
        place = parse_stored_key(unquote(object_id))
        try:
            found = None if place is None else find_record(once.store, *place)
        except OncekeyError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(reverse(_LIST))
        if found is None:
            raise Http404
        if request.method == "POST":
            return self._decide(request, once, found)
        facts = {
            "record": found,
            "word": status_word(found, time_of(once.store)),
            "state": state_of(found),
            "times": [(name.replace("_", " "), found.at(name)) for name in _TIMES],
            "size": None if found.result is None else len(found.result),
            "result": "",
            "deeds": audit_of(once.store, found),
            "may_resolve": found.status == "held" and self.has_change_permission(request),
            "may_forget": self.has_delete_permission(request),
            "may_see": found.result is not None and self.has_change_permission(request),
        }
        if facts["may_see"] and request.GET.get("result") == "show":
            try:
                facts["result"] = repr(found.value)
            except OncekeyError as error:  # what a newer release, or another codec, has written
                messages.error(request, str(error))
        title = stored_key(found.scope, found.key)
        return self._page(request, "oncekey/record.html", title, facts | (extra_context or {}))

    def _decide(self, request: Any, once: Once, found: Record) -> Any:
        """Resolve or forget the record, if it is still as the person saw it."""
        form, how = request.POST, request.POST.get("how", "")
        allowed = self.has_delete_permission if how == "forget" else self.has_change_permission
        if not allowed(request):
            raise PermissionDenied
        hand = {"by": request.user.get_username(), "reason": form.get("reason", "").strip()}
        here = HttpResponseRedirect(_address(found))
        if form.get("state") != state_of(found):
            messages.error(request, "The record has changed meanwhile. Nothing was done.")
            return here
        if form.get("confirmed") != "yes" or how not in ("forget", *ENDINGS):
            messages.error(request, "Say what to do, and tick the box. Nothing was done.")
            return here
        try:
            if how == "forget":
                force = needs_force(found)
                done = once.forget(found.key, scope=found.scope, force=force, **hand)
            else:
                said = ending(how, form.get("words", ""))
                done = once.resolve(found.key, scope=found.scope, **said, **hand)
        except (OncekeyError, msgspec.DecodeError) as error:
            messages.error(request, f"Nothing was done: {error}")
            return here
        if not done:
            messages.error(request, "The record has changed meanwhile. Nothing was done.")
            return here
        messages.success(request, f"{stored_key(found.scope, found.key)}: done, and written down.")
        return HttpResponseRedirect(reverse(_LIST)) if how == "forget" else here

    def _page(self, request: Any, template: str, title: str, facts: dict[str, Any]) -> Any:
        context = {**self.admin_site.each_context(request), "title": title, **facts}
        return TemplateResponse(request, template, {**context, "opts": self.opts})


def _address(record: Record) -> str:
    where: str = reverse(_DETAIL, args=[quote(stored_key(record.scope, record.key))])
    return where
