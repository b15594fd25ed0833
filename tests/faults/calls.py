"""The calls that one process makes in times of trouble, and what it writes down about them."""

import json
import random
from pathlib import Path

from prometheus_client import CollectorRegistry

from oncekey import Once
from oncekey.observe import Event
from oncekey.observe.prometheus import PrometheusObserver
from oncekey.policy import FailMode


class Calls:
    """What the callers of this process share."""

    def __init__(self, mode: FailMode, place: str, folder: str, name: str, *, keys: int) -> None:
        self.unprotected: list[str] = []
        self.metrics = CollectorRegistry()
        observers = (self.observe, PrometheusObserver(self.metrics))
        # Nobody may be taken over before the store is back, and nobody waits long for a duplicate.
        self.once = Once(place, observers=observers).options(
            fail_mode=mode, lease="1h", wait="1s", label="call"
        )
        self.mode, self.name, self.folder = mode, name, Path(folder)
        self.answers: dict[str, str] = {}
        # Closed, all processes want the same keys. Open, two of them could both run one by right.
        owner = "all" if mode == "closed" else name
        self.keys = [f"{owner}:{number}" for number in range(keys)]
        random.Random(name).shuffle(self.keys)  # noqa: S311 - another order in each process

    def observe(self, event: Event) -> None:
        if event.name == "unprotected":
            self.unprotected.append(event.key)

    def line(self, file: str, words: str) -> None:
        with (self.folder / file).open("a") as opened:  # one small append is one write
            opened.write(f"{words}\n")

    def effect(self, key: str, *, protected: bool) -> str:
        self.line("ledger", f"{key} {'protected' if protected else 'unprotected'}")
        return f"{key} by {self.name}"

    def refused(self, error: Exception) -> None:
        self.line("troubles", f"{self.name} {type(error).__name__}")

    def there(self, sign: str) -> bool:
        return (self.folder / sign).exists()

    def run(self, outages: int) -> None:
        """Every key is answered, and so many outages were met."""
        raise NotImplementedError

    def report(self) -> None:
        """The test can read what happened here."""
        facts = {"surface": "function", "task_type": "call", "reason": "store-down"}
        counted = self.metrics.get_sample_value("oncekey_unprotected_runs_total", facts)
        said = {"answers": self.answers, "unprotected": self.unprotected, "counted": counted or 0}
        draft = self.folder / f"draft.{self.name}"
        draft.write_text(json.dumps(said))
        draft.rename(self.folder / f"said.{self.name}")
