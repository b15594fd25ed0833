"""The pages about an outbox: what waits, what is dead, and what a person decides about it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from oncekey.core.audit import KEPT
from oncekey.dashboard import views
from oncekey.dashboard.actions import keep_deed
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.site import Visit
from oncekey.errors import ConfigurationError
from oncekey.inspection.listing import read_audit
from oncekey.inspection.text import SECOND, length, now
from oncekey.outbox import DeadLetter, Figures, Message, Waiting
from oncekey.outbox.lookup import existing_outbox

_WAITING: Final = 20
MOST_LETTERS: Final = 200
DECISIONS: Final = ("revive", "edit", "drop")
_DONE: Final = {
    "revive": "Done. Relays try the message again.",
    "edit": "Done. The edited message is sent in its place.",
    "drop": "Done. The message is deleted.",
}


async def outbox(visit: Visit) -> Response:
    """Return what waits in the outbox, and its dead letters."""
    url = _url(visit)
    found = await run_in_threadpool(_look, url)
    figures, waiting, letters = found or (None, [], [])
    age = length(round(figures.oldest * SECOND)) if figures and figures.pending else ""
    return visit.page(
        "outbox.html",
        figures=figures,
        age=age,
        waiting=[views.waiting_row(one) for one in waiting],
        letters=[views.outbox_letter_row(one) for one in letters],
        most=MOST_LETTERS,
        show=visit.site.show_results,
        done=_DONE.get(visit.request.query_params.get("done", ""), ""),
        now=now(),
    )


async def letter(visit: Visit) -> Response:
    """Return the page about a dead letter, with the form to decide about it."""
    found = await _letter(visit, visit.request.query_params.get("id", ""))
    return visit.page("letter.html", **await _about(visit, found), sentence="", typed={})


async def decide(visit: Visit) -> Response:
    """Ask for confirmation, then revive, edit or drop the dead letter as the form says."""
    form, how = visit.form, visit.form.get("how", "")
    found = await _letter(visit, form.get("id", ""))
    if str(found.message.token) != form.get("token"):
        raise _changed()
    if how not in DECISIONS:
        raise PageError(400, "Say what to do: try it again, send another message, or drop it.")
    facts = await _about(visit, found)
    if form.get("confirmed") != "yes":
        return visit.page("letter_ask.html", **facts, how=how, typed=form)
    try:
        became = await run_in_threadpool(_decided, _url(visit), found, how, form)
    except ConfigurationError as error:  # a message that cannot be sent
        return visit.page("letter.html", 400, **facts, sentence=str(error), typed=form)
    if not became:
        raise _changed()
    message = found.message
    await keep_deed(
        visit, action="resolve", scope=message.to, key=message.id, was="dead", became=became
    )
    return RedirectResponse(visit.address(f"/outbox?{urlencode({'done': how})}"), 303)


def _look(url: str) -> tuple[Figures, list[Waiting], list[DeadLetter]] | None:
    with existing_outbox(url) as outbox:
        if outbox is None:
            return None
        return (
            outbox.figures(),
            outbox.waiting(limit=_WAITING),
            outbox.dead_letters(limit=MOST_LETTERS),
        )


def _decided(url: str, found: DeadLetter, how: str, form: dict[str, str]) -> str:
    """Do what was decided. Return what became of the letter; empty if it has changed."""
    with existing_outbox(url) as outbox:
        if outbox is None:
            return ""
        if how == "revive":
            return "revived" if outbox.revive(found) else ""
        if how == "drop":
            return "dropped" if outbox.drop(found) else ""
        old = found.message
        body = old.body
        if "body" in form and form["body"] != views.body_of(found):
            body = form["body"].encode()
        edited = Message(
            type=form.get("type", old.type).strip(), attributes=old.attributes, body=body
        )
        new = outbox.edit(found, edited, to=form.get("to", "").strip() or None)
        return "" if new is None else f"edited, and sent as {new}"


async def _letter(visit: Visit, name: str) -> DeadLetter:
    """Return the dead letter with this id. Raise `PageError` with 404 if there is none."""
    url = _url(visit)

    def read() -> list[DeadLetter]:
        with existing_outbox(url) as outbox:
            return [] if outbox is None or not name else outbox.dead_letters(name)

    for found in await run_in_threadpool(read):
        return found
    raise PageError(404, f"No dead message has the id {name!r}. Somebody may have decided.")


async def _about(visit: Visit, found: DeadLetter) -> dict[str, Any]:
    """Return the variables for the templates about one dead letter."""
    store, message = visit.site.once.store, found.message
    entries = await run_in_threadpool(read_audit, store, KEPT)
    created = round(found.created * SECOND)
    by_hand = [
        one
        for one in entries or ()
        if (one.scope, one.key) == (message.to, message.id) and one.at >= created
    ]
    if "body" in visit.form:  # browsers have their own line ends
        visit.form["body"] = visit.form["body"].replace("\r\n", "\n")
    return {
        "letter": found,
        "message": message,
        "at": urlencode({"id": message.id}),
        "life": views.life_of_letter(found, by_hand, show=visit.site.show_results),
        "body": views.body_of(found),
        "size": len(message.body),
        "show": visit.site.show_results,
        "now": now(),
    }


def _url(visit: Visit) -> str:
    if visit.site.outbox is None:
        raise PageError(404, "This dashboard was not told of an outbox; give it outbox=.")
    return visit.site.outbox


def _changed() -> PageError:
    return PageError(409, "The message has changed in the meantime. Nothing was done; look again.")
