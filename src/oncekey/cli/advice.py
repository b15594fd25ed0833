"""What a record means for the next call, and the commands that change that."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

from oncekey import Record
from oncekey.cli.names import name_of
from oncekey.cli.options import Chosen
from oncekey.core.record import FORMAT
from oncekey.inspection.text import meaning


def advice(record: Record, chosen: Chosen, present: int) -> Iterator[str]:
    """Sentences, then the commands, each on a line of its own, ready to be copied."""
    yield meaning(record, present)
    if record.version > FORMAT:
        return
    for purpose, command in _commands(record):
        yield f"{purpose}:"
        yield f"  {_typed(record, chosen, *command)}"


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
