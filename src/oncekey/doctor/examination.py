"""Run an examination against a server, with a blocking or an async client.

An examination is a generator: it yields questions, is sent the answers, and returns findings. Only
the few lines that carry questions and answers differ between blocking code and coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from oncekey.doctor.finding import Finding

Q = TypeVar("Q")
Examination = Generator[Q, Any, list[Finding]]


class Refused(Struct, frozen=True):
    """The server refused to answer. `words` is its error message."""

    words: str


def conduct(examination: Examination[Q], ask: Callable[[Q], Any]) -> list[Finding]:
    """Return the findings. `ask` returns an answer or `Refused`, or raises."""
    try:
        question = next(examination)
        while True:
            question = examination.send(ask(question))
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings


async def conduct_async(
    examination: Examination[Q], ask: Callable[[Q], Awaitable[Any]]
) -> list[Finding]:
    """Return the findings. `ask` returns an answer or `Refused`, or raises."""
    try:
        question = next(examination)
        while True:
            question = examination.send(await ask(question))
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings
