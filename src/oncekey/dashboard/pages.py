"""The pages that only read: the overview, the list, one record and the doctor's findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote, urlencode

from msgspec.structs import replace
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from oncekey.core.audit import AuditEntry
from oncekey.core.record import FORMAT, Record
from oncekey.dashboard import views
from oncekey.dashboard.charts import SPANS, charts
from oncekey.dashboard.errors import PageError
from oncekey.dashboard.figures import figures
from oncekey.dashboard.site import Visit
from oncekey.doctor import Finding
from oncekey.errors import ConfigurationError, InvalidKeyError, OncekeyError
from oncekey.exporter import CONTENT_TYPE, exposition
from oncekey.inspection.actions import state_of
from oncekey.inspection.listing import audit_of, read_audit, time_of
from oncekey.inspection.text import SECOND, meaning, now, status_word
from oncekey.messages.dead_letters import dead_letters as inbox_letters
from oncekey.records import place as scope_and_key
from oncekey.stores.browse import STATUSES, RecordQuery, ScopeAndKey, parse_stored_key

_MANY: Final = 50
_SORTED: Final = 500
"""The number of records that are sorted at most."""
_MOST_ENTRIES: Final = 200
_DAY: Final = 86_400 * SECOND
AGES: Final = {
    "1h": ("newer", _DAY // 24, "in the last hour"),
    "1d": ("newer", _DAY, "in the last day"),
    "7d": ("newer", 7 * _DAY, "in the last week"),
    "over-1h": ("older", _DAY // 24, "over an hour ago"),
    "over-1d": ("older", _DAY, "over a day ago"),
    "over-7d": ("older", 7 * _DAY, "over a week ago"),
}
DONE: Final = {
    "resolved": "Done. The record ended as you said.",
    "forgotten": "Done. The key is forgotten, and may run again.",
}


async def overview(visit: Visit) -> Response:
    """Return the overview: live numbers, held records, findings and the newest records."""
    look = await visit.site.queries.look()
    calls = None if visit.site.counter is None else visit.site.counter.counts()
    findings, unasked = await _findings(visit)
    span = visit.request.query_params.get("over", "hour")
    if span not in SPANS:
        raise PageError(400, f"The charts show the last {', '.join(SPANS)}, not {span!r}.")
    return visit.page(
        "overview.html",
        charts=None if look.activity is None else charts(look.activity, span),
        spans=list(SPANS),
        figures=figures(look, calls),
        calls=calls,
        held=views.rows(look.held),
        held_all=look.held.after is None,
        newest=views.rows(look.newest),
        newest_first=look.newest.newest_first,
        now=look.at,
        troubling=[one for one in findings if one.severity != "fine"],
        examined=len(findings),
        unasked=unasked,
    )


async def labels(visit: Visit) -> Response:
    """Return how many records there are of each label and each scope."""
    found = await visit.site.queries.breakdown()
    return visit.page("labels.html", found=found, now=found.now)


async def dead_letters(visit: Visit) -> Response:
    """Return the messages that failed for good, the newest first."""
    letters = await run_in_threadpool(lambda: read_letters(visit.site.inbox))
    return visit.page(
        "dead_letters.html",
        letters=letters,
        most=MOST_LETTERS,
        show=visit.site.show_results,
        done=_LETTERS_DONE.get(visit.request.query_params.get("done", ""), ""),
        now=now(),
    )


MOST_LETTERS: Final = 200
_LETTERS_DONE: Final = {
    "freed": "Done. The message is processed when it is delivered again.",
}


def read_letters(inbox: str | None) -> list[views.DeadLetterRow] | None:
    """Return the dead letters of the inbox, or None if there is no inbox."""
    if inbox is None:
        raise PageError(404, "This dashboard was not told of an inbox; give it inbox=.")
    found = inbox_letters(inbox, limit=MOST_LETTERS)
    return None if found is None else [views.dead_letter_row(one) for one in found]


async def audit(visit: Visit) -> Response:
    """Return what people did by hand, the newest first."""
    store = visit.site.once.store
    entries = await run_in_threadpool(lambda: read_audit(store, _MOST_ENTRIES))
    return visit.page("audit.html", entries=entries, now=now())


async def metrics(visit: Visit) -> Response:
    """Return the numbers of the store and the outbox for Prometheus."""
    text = await run_in_threadpool(exposition, visit.site.once.store, visit.site.outbox)
    return Response(text, media_type=CONTENT_TYPE)


async def records(visit: Visit) -> Response:
    """Return one page of the list, filtered as the form above it says."""
    asked = {name: value for name, value in visit.request.query_params.items() if value}
    query = query_of(asked)
    if set(asked) == {"key"}:
        exact = await _exactly(visit, asked["key"].strip())
        if exact is not None:
            return RedirectResponse(visit.address(f"/record?{views.query_of(exact)}"), 303)
        query = _in_scope(query, asked["key"].strip())
    sort = asked.get("sort", "")
    if sort and sort.removeprefix("-") not in views.ORDERS:
        raise PageError(400, f"Records are sorted by {', '.join(views.ORDERS)}, not {sort!r}.")
    if sort:
        query = replace(query, limit=_SORTED)
    try:
        page = await visit.site.queries.page(query)
    except ConfigurationError as error:
        if "after" not in asked:
            raise
        raise PageError(400, str(error)) from None  # a cursor in the URL that was changed
    told = ("after", "done", *_TOLD)
    further = {name: value for name, value in asked.items() if name not in told}
    more = "" if page.after is None else urlencode({**further, "after": page.after})
    return visit.page(
        "records.html",
        rows=views.sorted_rows(page, sort) if sort else views.rows(page),
        sort=sort,
        orders=views.orders(sort, {one: asked[one] for one in further if one != "sort"}),
        newest_first=page.newest_first,
        now=page.now,
        asked=asked,
        ages={name: words for name, (_, _, words) in AGES.items()},
        chosen=bool(further.keys() - {"sort"}),
        more=more,
        first=urlencode(further) if "after" in asked else None,
        done=_done(asked),
        query=urlencode(further),
        unsorted=urlencode({one: asked[one] for one in further if one != "sort"}),
    )


def _done(asked: dict[str, str]) -> str:
    """Return what has just been done, as the address says."""
    if asked.get("done") != "many":
        return DONE.get(asked.get("done", ""), "")
    left = asked.get("left", "0")
    rest = "" if left == "0" else f" {left} had changed, or needed more, and were left alone."
    return f"Done, {asked.get('count', '0')} records.{rest}"


_TOLD: Final = ("count", "left")


async def _exactly(visit: Visit, typed: str) -> Record | None:
    """Return the record whose name was typed, as every log, page and command writes it."""
    place = parse_stored_key(typed)
    if place is None and typed.count("/") == 1:
        place = (typed.partition("/")[0] or None, typed.partition("/")[2])
    try:
        return None if place is None else await visit.site.queries.record(scope_and_key(*place))
    except (InvalidKeyError, ConfigurationError):
        return None


def _in_scope(query: RecordQuery, typed: str) -> RecordQuery:
    """Return the query for `scope/beginning`, if that is what was typed."""
    scope, slash, beginning = typed.partition("/")
    if not slash or not scope or "/" in beginning:
        return query
    return replace(query, any_scope=False, scope=unquote(scope), prefix=unquote(beginning))


async def record(visit: Visit) -> Response:
    """Return the page about one record, with the forms to change it."""
    found = await looked_up(visit, visit.request.query_params.get("at", ""))
    store = visit.site.once.store
    by_hand = await run_in_threadpool(lambda: audit_of(store, found))
    facts = await about(visit, found, by_hand)
    return visit.page("record.html", **facts, sentence="", typed={})


async def doctor(visit: Visit) -> Response:
    """Examine the store now and return the findings."""
    findings = await visit.site.examinations.findings(anew=True)
    return visit.page("doctor.html", findings=findings)


async def looked_up(visit: Visit, at: str) -> Record:
    """Return the record that was named. Raise `PageError` with 404 if there is none."""
    place = parse_stored_key(at)
    found = None if place is None else await visit.site.queries.record(place)
    if found is None:
        named = _named(place) if place is not None else repr(at)
        raise PageError(
            404, f"There is no record of {named}. It may have expired or been forgotten."
        )
    return found


async def about(visit: Visit, found: Record, by_hand: Iterable[AuditEntry] = ()) -> dict[str, Any]:
    """Return the variables for the templates about one record, and what people did to it."""
    present = await run_in_threadpool(time_of, visit.site.once.store)
    notes, steps, unreadable = views.noted(found)
    return {
        "record": found,
        "at": visit.request.query_params.get("at") or visit.form.get("at", ""),
        "seen": state_of(found),
        "word": status_word(found, present),
        "tone": views.tone_of(found, present),
        "known": found.version <= FORMAT,
        "meaning": meaning(found, present),
        "timeline": views.life(found, present, by_hand),
        "now": present,
        "trace": views.trace_of(found, visit.site.trace_url),
        "notes": notes,
        "steps": steps,
        "unreadable": unreadable,
        "show": visit.site.show_results,
        "failure": found.failure,
        "result": views.result_of(found) if visit.site.show_results else "",
        "result_size": views.result_size(found),
        "done": DONE.get(visit.request.query_params.get("done", ""), ""),
    }


def _named(place: ScopeAndKey) -> str:
    scope, key = place
    return f"{key!r} without a scope" if scope is None else f"{key!r} in the scope {scope!r}"


async def _findings(visit: Visit) -> tuple[list[Finding], str]:
    """Return the doctor's recent findings, or no findings and the error if the store fails."""
    try:
        return await visit.site.examinations.findings(), ""
    except OncekeyError as error:
        return [], str(error)


def query_of(asked: dict[str, str]) -> RecordQuery:
    """Return the query that the form describes. Raise `PageError` with 400 if it is not valid."""
    if any("\0" in value for value in asked.values()):
        raise PageError(400, "Keys, scopes and labels are text, without zero bytes.")
    status = asked.get("status")
    if status is not None and status not in STATUSES:
        raise PageError(400, f"A status is one of {', '.join(STATUSES)}, not {status!r}.")
    age = asked.get("age", "")
    if age and age not in AGES:
        raise PageError(400, f"An age is one of {', '.join(AGES)}, not {age!r}.")
    limits = {AGES[age][0]: AGES[age][1]} if age else {}
    scope = asked.get("scope")
    return RecordQuery(
        status=status,
        scope=None if scope == "-" else scope,
        any_scope=scope is None,
        label=asked.get("label", ""),
        prefix=asked.get("key", ""),
        after=asked.get("after"),
        limit=_MANY,
        **limits,
    )
