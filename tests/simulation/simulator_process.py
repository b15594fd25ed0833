"""Starts the simulator as a process of its own.

It puts other clocks into the modules of the core, and switches stacks under the feet of whatever
measures coverage: neither is for the process that runs the tests.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, module: str = "tests.simulation", **environment: str):
    """The finished process; what it printed is bytes."""
    inherited = {name: one for name, one in os.environ.items() if not name.startswith("COV")}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**inherited, **environment},
        capture_output=True,
        timeout=1800,
        check=False,
    )
