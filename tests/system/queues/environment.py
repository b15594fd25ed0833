"""The environment of queues that want another redis-py than ours."""

from pathlib import Path

from tests.outside.environment import ROOT
from tests.system.frameworks.environment import prepared

FOLDER = ROOT / "build" / "queues"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def prepare() -> Path:
    """Return the interpreter of an environment that has exactly the packages of the constraints.

    To renew them, install `arq saq hiredis msgspec prometheus-client
    typing_extensions` in a fresh environment, and
    write down what `pip freeze` prints.
    """
    return prepared(FOLDER, CONSTRAINTS)
