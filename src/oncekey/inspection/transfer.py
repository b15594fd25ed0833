"""Write the records of a store to a file, and restore them in another store.

The file has a line of JSON for each record, a line with a cursor after each page, and one at the
end with the number of records and a digest of their lines. An export that was cut off goes on after
its last cursor; an import says whether the file had its end, and whether that is right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.record import FORMAT, Record
from oncekey.errors import ConfigurationError
from oncekey.inspection.listing import find_record, list_records
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordQuery

_PAGE: Final = 500


class ExportedRecord(Struct, tag="record", frozen=True):
    """A record with its result. Bytes are in base64."""

    record: Record


class NewerRecord(Struct, tag="newer", frozen=True):
    """A record that only a newer release can write to a file: it is named, and is not in it."""

    scope: str | None
    key: str


class ExportCursor(Struct, tag="cursor", frozen=True):
    """The place up to which the records of the store are in the file."""

    after: str


class ExportEnd(Struct, tag="end", frozen=True):
    """The last line: how many records there are, and a digest of their lines."""

    records: int
    sha256: str


ExportLine = ExportedRecord | NewerRecord | ExportCursor | ExportEnd
_decode: Final = msgspec.json.Decoder(ExportLine).decode
Heard = Callable[[int], None]


class ExportOutcome(Struct):
    """What came of an export."""

    records: int = 0
    newer: int = 0
    """Records of a newer release, which are not in the file."""


class ImportOutcome(Struct):
    """What came of an import."""

    restored: int = 0
    there: int = 0
    """Records that the store has already, as they are in the file."""
    different: int = 0
    """Records of which the store has another one, which was left alone."""
    expired: int = 0
    newer: int = 0
    """Records of a newer release, which the export could not write."""
    complete: bool = False
    """Whether the file has its end, and all that it tells."""


def export_records(store: Store, path: Path, heard: Heard | None = None) -> ExportOutcome:
    """Write all living records to the file. Return how many there are.

    Go on with a file that has no end. Raise ConfigurationError if it has one, or if it is none.
    """
    begun = _begun(path)
    outcome, digest, after = begun.outcome, begun.digest, begun.after
    with os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
        file.truncate(begun.size)
        file.seek(begun.size)
        while True:
            page = list_records(store, RecordQuery(after=after, limit=_PAGE))
            for listed in page.records:
                record = find_record(store, listed.scope, listed.key)
                if record is None:  # it has gone meanwhile
                    continue
                told: ExportedRecord | NewerRecord = ExportedRecord(record)
                if record.version > FORMAT:
                    told = NewerRecord(record.scope, record.key)
                line = msgspec.json.encode(told) + b"\n"
                file.write(line)
                digest.update(line)
                _count(outcome, told)
            if heard is not None:
                heard(outcome.records)
            if page.after is None:
                break
            after = page.after
            file.write(msgspec.json.encode(ExportCursor(after)) + b"\n")
            file.flush()
        end = ExportEnd(outcome.records, digest.hexdigest())
        file.write(msgspec.json.encode(end) + b"\n")
    return outcome


class _Begun(NamedTuple):
    """How far the file of an export goes that was cut off."""

    outcome: ExportOutcome
    size: int
    after: str | None
    digest: Any


def _begun(path: Path) -> _Begun:
    """Return how far the file goes: to its last cursor. Raise ConfigurationError if it is whole."""
    begun = _Begun(ExportOutcome(), 0, None, sha256())
    if not path.exists():
        return begun
    if not path.is_file():
        raise ConfigurationError(f"{path} is no file; give the name of one")
    read, digest = ExportOutcome(), sha256()
    for place, line, decoded in _lines(path):
        if isinstance(decoded, ExportEnd):
            raise ConfigurationError(f"{path} is complete; give another name")
        if isinstance(decoded, ExportCursor):
            begun = _Begun(replace(read), place, decoded.after, digest.copy())
        else:
            _count(read, decoded)
            digest.update(line)
    return begun


def _count(outcome: ExportOutcome, told: ExportedRecord | NewerRecord) -> None:
    if isinstance(told, NewerRecord):
        outcome.newer += 1
    else:
        outcome.records += 1


def import_records(
    store: Store,
    path: Path,
    *,
    dry_run: bool = False,
    heard: Heard | None = None,
    outcome: ImportOutcome | None = None,
) -> ImportOutcome:
    """Restore the records of the file, and read each one back. Return what came of it.

    `outcome` has it on the way, for whoever must know what was done before an error. A record that
    the store has already is left alone, so that an import can be repeated. Raise
    ConfigurationError if the store cannot restore records, or if the file is no export.
    """
    restore = getattr(store, "restore", None)
    if restore is None:
        raise ConfigurationError(f"{type(store).__name__} cannot restore records")
    outcome = outcome or ImportOutcome()
    digest, count = sha256(), 0
    for _, line, decoded in _lines(path):
        if isinstance(decoded, ExportEnd):
            outcome.complete = decoded == ExportEnd(count, digest.hexdigest())
            if not outcome.complete:
                msg = f"{path} was changed: its end does not fit its {count} records"
                raise ConfigurationError(msg)
        if isinstance(decoded, NewerRecord):
            outcome.newer += 1
            digest.update(line)
        if isinstance(decoded, ExportedRecord):
            count += 1
            digest.update(line)
            restored = not dry_run and restore(decoded.record)
            _compare(outcome, decoded.record, store, restored=restored)
            if heard is not None:
                heard(count)
    return outcome


def _compare(outcome: ImportOutcome, record: Record, store: Store, *, restored: bool) -> None:
    """Read the record back, and count what was found."""
    found = find_record(store, record.scope, record.key)
    if found is None:
        outcome.expired += 1
    elif replace(found, version=record.version) != record:
        outcome.different += 1
    elif restored:
        outcome.restored += 1
    else:
        outcome.there += 1


def _lines(path: Path) -> Iterator[tuple[int, bytes, ExportLine]]:
    """Yield the place after each whole line, the line, and what it says."""
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # the writer was cut off here
            try:
                decoded = _decode(line)
            except msgspec.MsgspecError as error:
                msg = f"line {number} of {path} is no line of an export: {error}"
                raise ConfigurationError(msg) from None
            place += len(line)
            yield place, line, decoded
