"""The store of a shop whose provider was down: 300 charges are held, of which it did four."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from oncekey import Once, Policy
from tests.cli.shop import hours_ago

MANY: Final = 300
CHARGED: Final = {number: f"ch_{number}" for number in (5004, 5081, 5166, 5290)}
"""What the provider had done before it stopped to answer, by the number of the order."""


class Provider:
    """It answers nobody, but some charges have reached it."""

    def __init__(self) -> None:
        self.done: dict[int, str] = {}

    def charge(self, order: int) -> str:
        if order in CHARGED:
            self.done[order] = CHARGED[order]
        msg = "the provider did not answer within 10 s"
        raise TimeoutError(msg)


def charge_all(once: Once, provider: Provider) -> None:
    """Every charge is tried once, and is held afterwards."""
    billing = once.options(scope="billing", label="charge")
    for order in range(5000, 5000 + MANY):
        with suppress(TimeoutError), billing.attempt(f"charge:{order}") as attempt:
            attempt.note(request=f"req-{order}")
            provider.charge(order)


def open_outage(path: Path) -> None:
    """The file holds what the outage left, and beside it lies the list of the provider."""
    with closing(hours_ago(path, 1)) as store:
        once = Once(store, observers=(), policy=Policy(on_crash="hold", heartbeat=False))
        once.core._purging = True
        provider = Provider()
        charge_all(once, provider)
    lines = (f"charge:{order},{receipt}\n" for order, receipt in provider.done.items())
    (path.parent / "charged.csv").write_text("".join(lines), "utf-8")
