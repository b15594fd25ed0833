"""Records for programs: the same fields for every record, in one line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from oncekey import Record, UnreadableError
from oncekey.cli.text import plain
from oncekey.cli.times import iso


def print_json(fields: dict[str, Any]) -> None:
    """The fields are one line of the output, in ASCII, which any reader takes."""
    sys.stdout.write(json.dumps(plain(fields)) + "\n")


def fields_of(record: Record, *, result: bool = False) -> dict[str, Any]:
    """Everything about the record but its nonce, which only its owner knows.

    The result is in it when it was asked for. What cannot be read is null, and listed.
    """
    unreadable: list[str] = []
    notes, steps = _noted(record, unreadable)
    failure = record.failure or None
    if record.error and failure is None:
        unreadable.append("failure")
    fields: dict[str, Any] = {
        "scope": record.scope,
        "key": record.key,
        "status": record.status,
        "label": record.label,
        "reference": record.reference,
        "attempt": record.attempt,
        "uncertain": record.uncertain,
        "fingerprint": record.fingerprint,
        "token": record.token,
        "created": iso(record.created),
        "started": iso(record.started),
        "updated": iso(record.updated),
        "finished": iso(record.finished),
        "lease_end": iso(record.lease_end),
        "expires": iso(record.expires),
        "notes": notes,
        "steps": steps,
        "failure": failure,
        "result_size": None if record.result is None else len(record.result),
    }
    if result:
        fields["result"] = _value(record, unreadable)
    fields["unreadable"] = unreadable
    return fields


def _noted(
    record: Record, unreadable: list[str]
) -> tuple[dict[str, Any] | None, tuple[str, ...] | None]:
    try:
        return record.notes, record.steps
    except UnreadableError:
        unreadable += ["notes", "steps"]
        return None, None


def _value(record: Record, unreadable: list[str]) -> Any:  # noqa: ANN401 - whatever was kept
    try:
        return record.value
    except UnreadableError:
        unreadable.append("result")
        return None
