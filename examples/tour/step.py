"""A step of the tour: code that is shown and run, what must be true of it, and why it is so."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fact:
    """Something the tour claims, and whether it is so."""

    text: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Step:
    """`scene` is called without arguments, and `facts` judges what it returned."""

    title: str
    scene: Callable[[], Any]
    facts: Callable[[Any], Iterable[Fact]]
    why: str
    uses: tuple[Callable[..., Any], ...] = ()
    """What the scene calls and a reader should see as well."""

    @property
    def code(self) -> str:
        """The source of what runs in this step, as it stands in its file."""
        shown = (*self.uses, self.scene)
        return "\n\n".join(textwrap.dedent(inspect.getsource(one)).rstrip() for one in shown)
