"""Records for programs: the same fields for every record, in one line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from oncekey import Record, UnreadableError
from oncekey.cli.names import name_of
from oncekey.cli.text import plain
from oncekey.cli.times import iso
from oncekey.observe.redaction import hashed

_PERSONAL: Final = ("reference", "notes", "failure", "result")


def print_json(fields: dict[str, Any], *, at_once: bool = False) -> None:
    """Write the fields as one line of the output, in ASCII, which any reader takes.

    `at_once` is for commands that go on: whoever reads a pipe sees the line now.
    """
    sys.stdout.write(json.dumps(plain(fields)) + "\n")
    if at_once:
        sys.stdout.flush()


def fields_of(
    record: Record, size: int | None, *, result: bool = False, redact: bool = False
) -> dict[str, Any]:
    """Everything about the record but its nonce, which only its owner knows.

    `size` is that of its result, which is itself in it only when it was asked for. What cannot
    be read is null, and listed.
    """
    unreadable: list[str] = []
    notes, steps = _noted(record, unreadable)
    failure = record.failure or None
    if record.error and failure is None:
        unreadable.append("failure")
    fields: dict[str, Any] = {
        "name": name_of(record, redact=redact),
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
        "version": record.version,
        "notes": notes,
        "steps": steps,
        "failure": failure,
        "result_size": size,
    }
    if result:
        fields["result"] = _value(record, unreadable)
    fields["unreadable"] = unreadable
    return _hashed(record, fields) if redact else fields


def _hashed(record: Record, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without those that may tell about a person, and with hashes for the names."""
    kept = {name: value for name, value in fields.items() if name not in _PERSONAL}
    scope = None if record.scope is None else hashed(record.scope)
    return kept | {"scope": scope, "key": hashed(record.key)}


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
