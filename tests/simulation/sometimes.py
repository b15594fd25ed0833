"""What must have happened at least once in a large batch, or the batch proves less than it says.

Each is a path that a fault leads to, and each is counted once for every schedule that reaches it.
"""

from typing import Final

LARGE: Final = 3_000
"""From this many schedules on, every path must have been reached."""

PATHS: Final = (
    # what stores answer
    "busy",
    "replayed",
    "mismatch",
    "held",
    "spent",
    "granted again",
    "taken over",
    "notes inherited",
    "renewed",
    "stale write refused",
    "ttl over",
    "at the end of a lease",
    "attempts used up",
    "purged",
    # what befalls
    "crash",
    "stopped",
    "paused",
    "forked",
    "cut off from the store",
    "outage",
    "full",
    "breaker opened",
    "arrived, and nobody heard of it",
    "fail-over that lost something",
    "store clock went back",
    "store clock stood still",
    "wall clock jumped",
    "evicted",
    "forgotten",
    "cancelled",
    "exited",
    "closed",
    "interrupted",
    "cut off in a verb",
    "cut off upon a verb",
    "fell asleep upon a verb",
    "another store hung",
    # what effects do
    "committed with its record",
    "undone with its record",
    "keyed effect asked for again",
    "fenced",
    "doubtful effect",
    "bare effect doubled after a crash",
    "declined",
    "step skipped",
    # what callers hear, and what is done behind their backs
    "answered with the first result",
    "kept failure raised again",
    "result not kept",
    "in progress",
    "outcome unknown",
    "lease lost",
    "store trouble",
    "told late",
    "unprotected",
    "recorded late",
    "renewal_failed",
    "reconciled: done",
    "reconciled: not done",
    "resolved as done",
    "resolved: run again",
)
