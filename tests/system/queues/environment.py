"""The environments of queues that want other packages than ours."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.outside.environment import ROOT
from tests.system.frameworks.environment import prepared

FOLDER = ROOT / "build" / "queues"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
CONSTRAINTS_OF_DJANGO = Path(__file__).with_name("constraints_django.txt")
OF_DJANGO = ("python3.12", "python3.13", "python3.14")
"""Pythons that Django 6 runs on."""


def prepare() -> Path:
    """Return the interpreter of an environment that has exactly the packages of the constraints.

    To renew them, install `arq saq hiredis msgspec prometheus-client
    typing_extensions` in a fresh environment, and
    write down what `pip freeze` prints.
    """
    return prepared(FOLDER, CONSTRAINTS)


def prepare_django(python: str) -> Path:
    """Return the interpreter of an environment with Django 6.

    To renew its constraints, install `django django-tasks-db psycopg[binary] redis hiredis msgspec
    prometheus-client typing_extensions` in the same way.
    """
    return prepared(ROOT / "build" / "queues-django", CONSTRAINTS_OF_DJANGO, python)


def python_of_django() -> str | None:
    """Return the interpreter of these tests if Django 6 runs on it, or one on the PATH."""
    if sys.version_info >= (3, 12):
        return sys.executable
    found = (path for name in OF_DJANGO if (path := shutil.which(name)) is not None)
    return next((path for path in found if _starts(path)), None)


def _starts(python: str) -> bool:
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
