"""The pages that change a record: resolve and forget, each with a confirmation.

Each acts only if the record is still as the person saw it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from oncekey.core.audit import AuditEntry
from oncekey.core.record import FORMAT, Record
from oncekey.dashboard import views
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.pages import about, looked_up, query_of
from oncekey.dashboard.site import Visit
from oncekey.errors import ConfigurationError
from oncekey.inspection.actions import ENDINGS, ending, needs_force, state_of
from oncekey.inspection.bulk import Act, apply_to_all, collect, forgetting, resolving
from oncekey.inspection.listing import find_record, time_of
from oncekey.messages.dead_letters import dead_letters, free_dead_letter
from oncekey.stores.base import Store
from oncekey.stores.browse import parse_stored_key


async def ask_forget(visit: Visit) -> Response:
    """Return the page that asks for confirmation before a record is forgotten."""
    found = await looked_up(visit, visit.request.query_params.get("at", ""))
    return visit.page("forget.html", **await about(visit, found), sentence="")


async def forget(visit: Visit) -> Response:
    """Forget the key, and go back to the list."""
    found = await _unchanged(visit)
    force = needs_force(found)
    if force and visit.form.get("force") != "yes":
        sentence = f"It is {found.status}. Say that you know what is lost, or leave it."
        return visit.page("forget.html", 409, **await about(visit, found), sentence=sentence)
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
        return await _again(visit, found, error.status, str(error))
    if visit.form.get("confirmed") != "yes":
        return visit.page("resolve.html", **await about(visit, found), ending=how, typed=visit.form)
    try:
        done = await run_in_threadpool(
            visit.site.once.resolve, found.key, scope=found.scope, **said, **_hand(visit)
        )
    except ConfigurationError as error:  # a result that cannot be kept
        return await _again(visit, found, 400, str(error))
    if not done:
        raise _changed()
    visit.site.queries.outdate()
    return RedirectResponse(visit.address(f"/record?{views.query_of(found)}&done=resolved"), 303)


async def change_many(visit: Visit) -> Response:
    """Ask for confirmation, then resolve or forget the records that were ticked, or all.

    All are those that match the query of the list. Their number has to be typed.
    """
    how = visit.form.get("how", "")
    if how not in MANY:
        raise PageError(400, "Say what to do with the records: resolve them, or forget them.")
    store = visit.site.once.store
    ticked: list[str] = []
    if visit.form.get("all") == "yes":
        asked = dict(parse_qsl(visit.form.get("query", "")))
        asked.pop("after", None)
        found = await run_in_threadpool(lambda: collect(store, query_of(asked)))
    else:
        ticked = [name.removeprefix("pick:") for name in visit.form if name.startswith("pick:")]
        found = await run_in_threadpool(lambda: _as_seen(store, ticked, visit.form))
    if how != "forget":
        found = [one for one in found if one.status == "held"]
    if not found:
        raise PageError(409, "None of these records is there, and as it has to be, any more.")
    present = await run_in_threadpool(time_of, store)
    facts: dict[str, Any] = {
        "rows": [views.RecordRow(one, None, present) for one in found[:_SHOWN]],
        "count": len(found),
        "left": max(0, len(ticked) - len(found)),
        "how": how,
        "typed": visit.form,
    }
    if "confirmed" not in visit.form:
        return visit.page("change.html", **facts, sentence="")
    if visit.form["confirmed"].strip() != str(len(found)):
        sentence = f"There are {len(found)} now. Type that number to go on; nothing was changed."
        return visit.page("change.html", 409, **facts, sentence=sentence)
    act = _act(visit, how)
    outcome = await run_in_threadpool(lambda: apply_to_all(visit.site.once, found, act))
    visit.site.queries.outdate()
    told = urlencode({"done": "many", "count": outcome.done, "left": len(found) - outcome.done})
    return RedirectResponse(visit.address(f"/records?{told}"), 303)


def _as_seen(store: Store, ticked: list[str], form: Mapping[str, str]) -> list[Record]:
    """Return the records of these names that are as they were when they were ticked."""
    found = []
    for name in ticked:
        place = parse_stored_key(name)
        record = None if place is None else find_record(store, *place)
        if record is not None and state_of(record) == form[f"pick:{name}"]:
            found.append(record)
    return found


async def free_letter(visit: Visit) -> Response:
    """Let a dead message be processed when it is delivered again."""
    inbox, form = visit.site.inbox, visit.form
    if inbox is None:
        raise PageError(404, "This dashboard was not told of an inbox; give it inbox=.")
    consumer, key = form.get("box", ""), form.get("key", "")
    found = await run_in_threadpool(lambda: dead_letters(inbox, consumer=consumer, key=key))
    dead = (one for one in found or () if one.dead and str(one.token) == form.get("token"))
    letter = next(dead, None)
    if letter is None or not await run_in_threadpool(free_dead_letter, inbox, letter):
        raise PageError(409, "The message has changed in the meantime. Nothing was done.")
    await keep_deed(visit, action="retry", scope=consumer or None, key=key)
    return RedirectResponse(visit.address("/dead-letters?done=freed"), 303)


async def keep_deed(visit: Visit, **facts: Any) -> None:
    """Write into the audit trail what was done to something that is no record."""
    write = getattr(visit.site.once.store, "audit", None)
    if write is not None:
        await run_in_threadpool(write, AuditEntry(**facts, **_hand(visit)).encode())


def _act(visit: Visit, how: str) -> Act:
    hand = _hand(visit)
    if how == "forget":
        return forgetting(force=visit.form.get("force") == "yes", **hand)
    return resolving(_said(how, visit.form), **hand)


MANY: Final = (*ENDINGS, "forget")
_SHOWN: Final = 20


async def _again(visit: Visit, found: Record, status: int, sentence: str) -> Response:
    """Return the page of the record with the typed form and the error."""
    facts = await about(visit, found)
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
