"""One run of a guest's suite in one mode."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.outside.environment import HERE, ROOT, Place
from tests.outside.guests import Guest
from tests.servers.redis import RedisServer

LONGEST = 1800.0
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class Outcomes(NamedTuple):
    """The outcome of each test by its id, and how often each thing happened to Oncekey."""

    tests: dict[str, str]
    notes: Counter[str]

    @property
    def wrapped(self) -> int:
        """How many applications or tasks were wrapped."""
        return self.notes["wrapped"]

    @property
    def claimed(self) -> int:
        """How many requests or jobs were claimed."""
        return self.notes["new"] + self.notes["taken_over"]


def run(guest: Guest, place: Place, mode: str, tests: Sequence[str] = ()) -> Outcomes:
    """Run the suite, or only these tests."""
    log = place.folder / f"{guest.name}-{mode}{'-again' if tests else ''}.log"
    words = [str(place.python), *guest.command, *(tests or guest.tests)]
    with tempfile.TemporaryDirectory(dir=place.folder) as temporary, log.open("w") as printed:
        folder = Path(temporary)
        found, notes = folder / "outcomes.json", folder / "notes.txt"
        notes.touch()
        with surroundings(guest, mode, folder) as variables:
            execute(words, place.source / guest.folder, variables, printed)
        if not found.is_file():
            raise SystemExit(f"the tests of {guest.name} did not run to their end; see {log}")
        outcomes: dict[str, str] = json.loads(found.read_text("utf-8"))
        counted = Counter(notes.read_text("utf-8").split())
    return Outcomes(
        {ADDRESS.sub("0x", test): outcome for test, outcome in outcomes.items()}, counted
    )


def execute(words: list[str], folder: Path, variables: dict[str, str], printed: IO[str]) -> None:
    """Run a command to its end. If that takes too long, or we are stopped, it ends at once."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        process.wait(LONGEST)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)  # with the workers that it has started
        process.wait()
        raise


@contextlib.contextmanager
def surroundings(guest: Guest, mode: str, folder: Path) -> Iterator[dict[str, str]]:
    """Provide the variables for the suite's process, and the server that they name."""
    variables = {
        "ONCEKEY_OUTSIDE_MODE": mode,
        "ONCEKEY_OUTSIDE_OUTCOMES": str(folder / "outcomes.json"),
        "ONCEKEY_OUTSIDE_NOTES": str(folder / "notes.txt"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE / "plugins")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    if not guest.redis:
        yield variables
        return
    server = RedisServer(folder).start()
    try:
        yield variables | {
            "ONCEKEY_OUTSIDE_STORE": server.url,
            "TEST_BROKER": server.url,
            "TEST_BACKEND": server.url,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(server.port),
        }
    finally:
        server.stop()
