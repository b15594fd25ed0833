"""What the job does, and how its worker tells of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from oncekey.events import Bus, Draft

DOMAIN = "scan"

PLAN: Mapping[str, tuple[str, ...]] = {
    "vision": (
        "The photo is loaded",
        "Three things are in it",
        "A bottle, its cap and its label",
        "The bottle is of green glass",
    ),
    "rule": (
        "The rules of the town are loaded",
        "Glass: the container for green glass",
        "Metal: the yellow bag",
    ),
    "answer": (
        "A first answer is written",
        "It is checked against the rules",
        "It is made shorter",
        "Take the cap off, rinse the bottle",
    ),
    "reward": ("10 points for the bottle", "5 points for the cap"),
    "done": ("The answer is stored", "Complete"),
}
TITLES = {
    "vision": "Look",
    "rule": "Find rules",
    "answer": "Answer",
    "reward": "Points",
    "done": "Store",
}
TOTAL = sum(map(len, PLAN.values()))


def events(job: str) -> list[Draft]:
    """Everything that the worker will publish, in order."""
    return [
        Draft(job, stage, {"text": text}, step=step)
        for stage, texts in PLAN.items()
        for step, text in enumerate(texts)
    ]


def work(bus: Bus, job: str, pause: Callable[[], object]) -> int:
    """The job is done; how many events were published a second time.

    A worker that got no answer publishes again. This one often does: each third time.
    """
    again = 0
    for count, draft in zip(itertools.count(1), events(job), strict=False):
        pause()
        bus.publish_batch([draft])
        if count % 3 == 0:
            (published,) = bus.publish_batch([draft])
            again += published.duplicate
    return again
