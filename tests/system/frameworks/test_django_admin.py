"""The records in Django's admin, in a process of its own: settings are one for a process."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "django_admin.py"


def test_every_page_and_every_decision(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", SCRIPT, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
