"""The pages that change a record: resolve and forget, each with a confirmation.

Each acts only if the record is still as the person saw it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from oncekey.core.record import FORMAT, Record
from oncekey.dashboard import views
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.pages import about, looked_up
from oncekey.dashboard.site import Visit
from oncekey.errors import ConfigurationError
from oncekey.inspection.actions import ENDINGS, ending, needs_force, state_of


async def ask_forget(visit: Visit) -> Response:
    """Return the page that asks for confirmation before a record is forgotten."""
    found = await looked_up(visit, visit.request.query_params.get("at", ""))
    return visit.page("forget.html", **about(visit, found), sentence="")


async def forget(visit: Visit) -> Response:
    """Forget the key, and go back to the list."""
    found = await _unchanged(visit)
    force = needs_force(found)
    if force and visit.form.get("force") != "yes":
        sentence = f"It is {found.status}. Say that you know what is lost, or leave it."
        return visit.page("forget.html", 409, **about(visit, found), sentence=sentence)
    done = await run_in_threadpool(
        visit.site.once.forget, found.key, scope=found.scope, force=force, **_hand(visit)
    )
    if not done:
        raise _changed()
    visit.site.queries.outdate()
    return RedirectResponse(visit.address("/records?done=forgotten"), 303)


async def resolve(visit: Visit) -> Response:
    """Ask for confirmation, then resolve the held record as the form says."""
    found = await _unchanged(visit)
    if found.status != "held":
        raise PageError(
            409, f"The record is {found.status}, not held: there is nothing to resolve."
        )
    how = visit.form.get("ending", "")
    try:
        said = _said(how, visit.form)
    except PageError as error:
        return _again(visit, found, error.status, str(error))
    if visit.form.get("confirmed") != "yes":
        return visit.page("resolve.html", **about(visit, found), ending=how, typed=visit.form)
    try:
        done = await run_in_threadpool(
            visit.site.once.resolve, found.key, scope=found.scope, **said, **_hand(visit)
        )
    except ConfigurationError as error:  # a result that cannot be kept
        return _again(visit, found, 400, str(error))
    if not done:
        raise _changed()
    visit.site.queries.outdate()
    return RedirectResponse(visit.address(f"/record?{views.query_of(found)}&done=resolved"), 303)


def _again(visit: Visit, found: Record, status: int, sentence: str) -> Response:
    """Return the page of the record with the typed form and the error."""
    facts = about(visit, found)
    return visit.page("record.html", status, **facts, sentence=sentence, typed=visit.form)


async def _unchanged(visit: Visit) -> Record:
    """Return the record that the form is about. Raise `PageError` if it has changed since."""
    found = await looked_up(visit, visit.form.get("at", ""))
    if found.version > FORMAT:
        raise PageError(
            409, "A newer release of oncekey wrote this record; change it with that one."
        )
    if state_of(found) != visit.form.get("seen"):
        raise _changed()
    return found


def _said(how: str, form: dict[str, str]) -> dict[str, Any]:
    """Return the keyword arguments for `Once.resolve`. Raise `PageError` if the form is wrong."""
    if how not in ENDINGS:
        raise PageError(400, "Say how it ended: it was done, it failed, or it may run again.")
    words = form.get(how, "").strip()
    if how == "error" and not words:
        raise PageError(400, "Say in some words how it failed: every duplicate hears them.")
    try:
        return ending(how, words)
    except msgspec.DecodeError as error:
        msg = f'The result is not JSON: {error}. A text needs quotes of its own: "done".'
        raise PageError(400, msg) from None


def _hand(visit: Visit) -> dict[str, Any]:
    """Return who acts and why, for the audit trail."""
    by = visit.admitted.user or "somebody at the dashboard"
    return {"by": by, "reason": visit.form.get("reason", "").strip()}


def _changed() -> PageError:
    return PageError(409, "The record has changed in the meantime. Nothing was done; look again.")
