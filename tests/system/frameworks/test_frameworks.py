"""Frameworks for agents, and others, call a protected function as they call the plain one."""

import json
import os
import subprocess

import pytest

from tests.outside.environment import ROOT
from tests.patience import PATIENCE
from tests.system.frameworks import environment
from tests.system.frameworks.program import FRAMEWORKS

pytestmark = pytest.mark.xdist_group("frameworks")  # one process makes the environment


@pytest.fixture(scope="module")
def python():
    return environment.prepare()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_calls_each_function_twice_and_it_runs_once(python, name):
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    done = subprocess.run(
        [python, "-m", "tests.system.frameworks.program", name],
        env={**os.environ, "PYTHONPATH": paths, "OPENAI_AGENTS_DISABLE_TRACING": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["answers"] == {
        "charge": ["0 is paid"] * 2,
        "send": ["0 is sent"] * 2,
        "sell": ["0 is sold"] * 2,
        "deliver": ["0 is delivered"] * 2,
    }
    assert found["ran"] == ["charge", "send", "sell", "deliver"]


def test_the_constraints_are_names_and_versions():
    lines = environment.CONSTRAINTS.read_text("utf-8").splitlines()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)
