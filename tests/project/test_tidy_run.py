"""A run of the tests that leaves something behind has failed."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests import tidy_run
from tests.patience import until

pytestmark = pytest.mark.xdist_group("tidy")  # one would see what the other leaves behind

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared(tmp_path):
    """A folder for shared memory that no other run uses."""
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def run(shared):
    def run(script, folder=ROOT, shared=shared):
        settings = {
            "ONCEKEY_TEST_PATIENCE": "0.1",
            "ONCEKEY_TEST_SHARED_MEMORY": str(shared),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.run(
            [sys.executable, "-m", "tests.tidy_run", sys.executable, "-c", script],
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command(run, code):
    done = run(f"raise SystemExit({code})")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_file_is_named_and_goes(run):
    script = "import os, tempfile; name = tempfile.mkstemp(prefix='lost-')[1]; print(name)"
    done = run(script)
    path = Path(done.stdout.strip())
    assert done.returncode == 1
    assert f"left behind: file {path.name}" in done.stderr.splitlines()
    assert not path.parent.exists()


def test_a_file_in_the_project_is_named_and_stays(run, tmp_path):
    done = run("open('shop.db', 'w').close(); open('.cache', 'w').close()", tmp_path)
    assert done.returncode == 1
    assert "left behind: file shop.db of the project" in done.stderr.splitlines()
    assert ".cache" not in done.stderr
    assert (tmp_path / "shop.db").exists()


def test_a_process_whose_parent_has_ended_is_named_and_killed(run):
    orphan = "import time; print('up', flush=True); time.sleep(3600)"
    middle = (
        "import subprocess, sys;"
        f"one = subprocess.Popen([sys.executable, '-c', {orphan!r}], stdout=subprocess.PIPE);"
        "one.stdout.readline(); print(one.pid)"
    )
    done = run(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {middle!r}])")
    pid = int(done.stdout)
    assert done.returncode == 1
    assert done.stderr.startswith(f"left behind: process {pid}: {sys.executable} -c import time")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


LEAVES = "import os; os.close(os.open({!r}, os.O_CREAT))"


def test_shared_memory_that_nobody_uses_is_named(run, shared):
    done = run(LEAVES.format(f"{shared}/mine"))
    assert (done.returncode, done.stderr) == (1, "left behind: shared memory mine\n")


def test_shared_memory_may_be_that_of_a_run_beside(run):
    """It does not say whose it is, and the run that ends last is judged."""
    path = tidy_run.SHARED / f"oncekey-{uuid.uuid4()}"
    waits = "import os; os.write(1, b'up'); os.read(0, 1)"
    words = [sys.executable, "-m", "tests.tidy_run", sys.executable, "-c", waits]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as other:
        assert other.stdout.read(2) == b"up"
        done = run(LEAVES.format(f"{path}"), shared=tidy_run.SHARED)
        path.unlink()
        other.stdin.close()
    assert (done.returncode, done.stderr) == (0, "")


def test_semaphores_of_another_program_are_not_ours(run, shared):
    """Python opens them by name, so that nobody may have one open at the moment."""
    leaves = LEAVES.format(f"{shared}/sem.mp-1")
    tracker = "from multiprocessing import resource_tracker as t; t.ensure_running(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", tracker], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        until(tidy_run._another_python)
        beside = run(leaves)
        other.stdin.close()
    assert (beside.returncode, beside.stderr) == (0, "")
