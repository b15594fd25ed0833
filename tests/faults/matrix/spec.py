"""What a worker is told: which store, which keys, how it asks, and where it must fail."""

from typing import Literal

from msgspec import Struct

from tests.patience import PATIENCE

Mode = Literal["keyed", "bare", "held", "reconciled", "atomic"]
Surface = Literal["function", "coroutine", "job", "http", "leased", "atomic", "naive"]

UNBOUNDED = 10**9
BLOCK = 50
"""Keys are asked for in blocks of so many."""
SCOPE = "matrix"


class Spec(Struct, kw_only=True, forbid_unknown_fields=True):
    """One worker. `fails` are failpoints such as `after_effect:kill@0.05`."""

    name: str
    folder: str
    place: str
    surface: Surface = "function"
    mode: Mode = "keyed"
    first: int = 0
    """The first key, so that one store serves several runs."""
    keys: int
    callers: int = 4
    lease: str = "1s"
    wait: str = "5s"
    ttl: str = "1h"
    fail_mode: Literal["open", "closed"] = "closed"
    fails: list[str] = []
    seed: int = 0
    effect: float = 0.0
    """Seconds that the effect takes."""
    clock: float = 0.0
    """Seconds by which the clock of this worker is wrong."""
    settle_patience: float = 0.3
    """Seconds that a caller waits for its settle, so that an outage outlasts it."""
    patience: float = PATIENCE
    """After so many seconds without an answer a key is given up."""
    life: int = 0
    """How often it died before."""
    until: str = ""
    """A file whose presence ends the work; without it, all keys do."""
    together: bool = False
    """Whether every caller asks for every key, so that they all want the same one."""
    poison: int = 0
    """Every key whose number this divides kills the worker that runs it."""
    max_attempts: int | None = None
