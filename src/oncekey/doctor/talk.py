"""How a doctor talks to a server without knowing the colour of its client.

A talk is a generator: it yields what it asks, is sent what was answered, and returns its findings.
The few lines that carry questions and answers are all that blocking code and coroutines differ in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from oncekey.doctor.finding import Finding

Q = TypeVar("Q")
Talk = Generator[Q, Any, list[Finding]]


class Refused(Struct, frozen=True):
    """The server would not say; these are its words."""

    words: str


def carry(talk: Talk[Q], ask: Callable[[Q], Any]) -> list[Finding]:
    """The findings of the talk; `ask` gives an answer, or `Refused`, or raises."""
    try:
        question = next(talk)
        while True:
            question = talk.send(ask(question))
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings


async def carry_async(talk: Talk[Q], ask: Callable[[Q], Awaitable[Any]]) -> list[Finding]:
    """The findings of the talk; `ask` gives an answer, or `Refused`, or raises."""
    try:
        question = next(talk)
        while True:
            question = talk.send(await ask(question))
    except StopIteration as end:
        findings: list[Finding] = end.value
        return findings
