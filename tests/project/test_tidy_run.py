"""A run of the tests that leaves something behind has failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tidy_run
from tests.patience import until

pytestmark = pytest.mark.xdist_group("tidy")  # one would see what the other leaves behind

ROOT = Path(__file__).parents[2]


def run(script, folder=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "tests.tidy_run", sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "ONCEKEY_TEST_PATIENCE": "0.1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_command(code):
    done = run(f"raise SystemExit({code})")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_file_is_named_and_goes():
    script = "import os, tempfile; name = tempfile.mkstemp(prefix='lost-')[1]; print(name)"
    done = run(script)
    path = Path(done.stdout.strip())
    assert done.returncode == 1
    assert f"left behind: file {path.name}" in done.stderr.splitlines()
    assert not path.parent.exists()


def test_a_file_in_the_project_is_named_and_stays(tmp_path):
    done = run("open('shop.db', 'w').close(); open('.cache', 'w').close()", tmp_path)
    assert done.returncode == 1
    assert "left behind: file shop.db of the project" in done.stderr.splitlines()
    assert ".cache" not in done.stderr
    assert (tmp_path / "shop.db").exists()


def test_a_process_whose_parent_has_ended_is_named_and_killed():
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


def test_shared_memory_that_nobody_uses_is_named():
    script = (
        "import os, uuid; name = f'/dev/shm/oncekey-{uuid.uuid4()}';"
        "os.close(os.open(name, os.O_CREAT)); print(name)"
    )
    done = run(script)
    path = Path(done.stdout.strip())
    path.unlink()
    assert (done.returncode, done.stderr) == (1, f"left behind: shared memory {path.name}\n")


def test_semaphores_of_another_program_are_not_ours():
    """Python opens them by name, so that nobody may have one open at the moment."""
    script = (
        "import os, uuid; name = f'/dev/shm/sem.mp-{uuid.uuid4()}';"
        "os.close(os.open(name, os.O_CREAT)); print(name)"
    )
    tracker = "from multiprocessing import resource_tracker as t; t.ensure_running(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", tracker], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        until(tidy_run._another_python)
        beside = run(script)
        other.stdin.close()
    Path(beside.stdout.strip()).unlink()
    assert (beside.returncode, beside.stderr) == (0, "")
