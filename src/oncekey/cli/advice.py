"""What a record means for the next call, and the commands that change that."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from oncekey import Record
from oncekey.cli.names import name_of
from oncekey.cli.options import Chosen
from oncekey.record import FORMAT

_MEANING: Final = {
    "running": "An attempt is running; a duplicate waits for it, or is told to come back.",
    "completed": "A duplicate gets the result without running.",
    "failed": "A duplicate gets the same failure without running.",
    "released": "The next call runs.",
    "held": "Nobody knows how the last attempt ended. Find out, then say so.",
}


def advice(record: Record, chosen: Chosen, present: int) -> Iterator[str]:
    """Sentences, then the commands, each on a line of its own, ready to be copied."""
    if record.version > FORMAT:
        yield (
            f"A newer release wrote it (format {record.version}); this one shows what it "
            f"understands and changes nothing. Upgrade oncekey here as well."
        )
        return
    yield _meaning(record, present)
    for purpose, command in _commands(record):
        yield f"{purpose}:"
        yield f"  {_typed(record, chosen, *command)}"


def _meaning(record: Record, present: int) -> str:
    if record.status == "running" and record.lease_end <= present:
        return "Its attempt has not renewed its lease; the next call takes over or holds it."
    if record.status == "completed" and record.result is None:
        return "It was done, but its result was not kept; a duplicate hears that."
    if record.status == "released" and record.noted:
        return "The next call runs, and finds what was noted."
    return _MEANING.get(record.status, "Its bytes are not those of a record; see the store itself.")


def _commands(record: Record) -> Iterator[tuple[str, tuple[str, ...]]]:
    if record.status == "held":
        yield "It was done, and this is its result", ("resolve", "--result", "JSON")
        yield "It failed for good", ("resolve", "--error", "TEXT")
        yield "It was not done, and may run again", ("resolve", "--retry")
    elif record.status == "running":
        yield "To free the key all the same (its attempt is lost)", ("forget", "--force")
    elif record.status in ("completed", "failed"):
        yield "To let it run again", ("forget",)


def _typed(record: Record, chosen: Chosen, command: str, *options: str) -> str:
    """The command as a shell takes it; a key that looks like an option goes last."""
    where: list[str] = []
    if chosen.typed:
        secret = urlsplit(chosen.url).password is not None
        where = ["--store", "URL" if secret else chosen.url]
    name = name_of(record)
    named = [*where, *options, "--", name] if name.startswith("-") else [name, *where, *options]
    return shlex.join(["oncekey", command, *named])
