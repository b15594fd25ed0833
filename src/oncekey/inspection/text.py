"""How records are written for people."""

from __future__ import annotations

from typing import Final

from oncekey.core.record import FORMAT, Record

# What a record means for the next call, in a sentence for whoever looks at it.


_MEANING: Final = {
    "running": "An attempt is running; a duplicate waits for it, or is told to come back.",
    "completed": "A duplicate gets the result without running.",
    "failed": "A duplicate gets the same failure without running.",
    "released": "The next call runs.",
    "held": "Nobody knows how the last attempt ended. Find out, then say so.",
}


def meaning(record: Record, present: int) -> str:
    """The sentence, judged at the store's time `present`."""
    if record.version > FORMAT:
        return (
            f"A newer release wrote it (format {record.version}); this one shows what it "
            f"understands and changes nothing. Upgrade oncekey here as well."
        )
    if record.status == "running" and record.lease_end <= present:
        return "Its attempt has not renewed its lease; the next call takes over or holds it."
    if record.status == "completed" and record.result is None:
        return "It was done, but its result was not kept; a duplicate hears that."
    if record.status == "released" and record.noted:
        return "The next call runs, and finds what was noted."
    return _MEANING.get(record.status, "Its bytes are not those of a record; see the store itself.")
