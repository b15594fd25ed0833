"""Run a command and fail when it leaves something behind: `python -m tests.tidy_run COMMAND`.

The command gets a temporary directory of its own. When it has ended, no process that it started
may be alive, and neither files in that directory or in the folder of the project nor shared memory
may be left. What is left is named and, outside the project, removed. The exit code is the command's
own, or 1 when only the tidiness is missing.

Shared memory does not say who made it. Where another run goes on beside this one, it may be that
one's: the run that ends last is judged by it.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.patience import PATIENCE

PR_SET_CHILD_SUBREAPER = 36
_OF_PYTHON = "sem.mp-"
_RUNS = (b"tests.tidy_run", b"tests.defects", b"tests.faults")
"""What runs servers, and kills some of them."""
SHARED = Path("/dev/shm")  # noqa: S108 - that is where Linux shows them
FOLDER = Path(os.environ.get("ONCEKEY_TEST_SHARED_MEMORY", SHARED))
"""Where shared memory is looked for; the tests of this module use a folder of their own."""
PYTEST = "pytest-of-"
"""The name of the folder that pytest keeps for its own, which goes with the directory."""


def main(words: Sequence[str]) -> int:
    """Run the command and return its exit code, or 1 when it left something behind."""
    if not words:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    _adopt_orphans()
    shared, project = shared_memory(), _files_here()
    folder = Path(tempfile.mkdtemp(prefix="oncekey-tests-"))
    folder.chmod(0o755)  # a server of the tests may run as another user
    try:
        code = _run(words, folder)
        left = [
            *(f"process {name}" for name in end_processes()),
            *(f"file {path.name}" for path in folder.iterdir() if PYTEST not in path.name),
            *(f"file {name} of the project" for name in sorted(_files_here() - project)),
            *(f"shared memory {name}" for name in sorted(_unused_since(shared))),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for one in left:
        sys.stderr.write(f"left behind: {one}\n")
    return code or int(bool(left))


def _files_here() -> set[str]:
    """Return what stands in the current folder, without the caches and results of tools."""
    return {path.name for path in Path().iterdir() if path.name[0] != "." and path.name != "build"}


def _run(words: Sequence[str], folder: Path) -> int:
    process = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(folder)})
    for number in (signal.SIGTERM, signal.SIGINT):  # Ctrl-C reaches the process by itself
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: process.send_signal(received))
    code = process.wait()
    return 128 - code if code < 0 else code


def _adopt_orphans() -> None:
    """Make this process the parent of every process below it whose own parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_processes() -> list[str]:
    """Wait for children that are about to end. Kill the others and return their command lines."""
    give_up = time.monotonic() + min(PATIENCE, 60.0)
    while (alive := _children()) and time.monotonic() < give_up:
        time.sleep(0.05)
    names = [_command_of(pid) for pid in alive]
    while alive := _children():
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return names


def _children() -> list[int]:
    """Reap what has ended. Return the children of this process that are alive."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return []
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    return [int(pid) for pid in listed.split()]


def _command_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return f"{pid}: {b' '.join(words).decode(errors='replace')[:200]}"


def _unused_since(before: set[str]) -> set[str]:
    """Return the new segments that stay unused, unless another run goes on that may own them."""
    left = shared_memory() - before
    give_up = time.monotonic() + min(PATIENCE, 10.0)
    while left and not _another_run():
        time.sleep(1)
        left &= shared_memory()
        if time.monotonic() > give_up:
            return left
    return set()


def _another_run() -> bool:
    """Return whether another run of tests uses the shared memory that this one looks at."""
    return FOLDER == SHARED and any(_runs_beside(word, _ancestors()) for word in _RUNS)


def _ancestors() -> set[int]:
    """Return this process and those that it was started by."""
    pid, found = os.getpid(), set()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
    return found


def shared_memory() -> set[str]:
    """Return the segments that no process uses: POSIX ones by name, System V ones by number.

    Only root can tell whether a process of another user uses one.
    """
    names = {path.name for path in FOLDER.iterdir() if _ours(path)} if FOLDER.is_dir() else set()
    used = set()
    if names:
        for maps in Path("/proc").glob("[0-9]*/maps"):
            try:
                text = maps.read_text("utf-8", "replace")
            except OSError:  # it has ended, or is somebody else's
                continue
            used |= {name for name in names if f"{FOLDER}/{name}" in text}
    if any(name.startswith(_OF_PYTHON) for name in names) and _another_python():
        names = {name for name in names if not name.startswith(_OF_PYTHON)}
    table = Path("/proc/sysvipc/shm")
    everybodys = FOLDER == SHARED and table.is_file()
    rows = table.read_text("ascii").splitlines()[1:] if everybodys else []
    segments = {
        f"segment {number}"
        for _, number, _, _, _, _, users, owner, *_ in map(str.split, rows)
        if users == "0" and os.geteuid() in {0, int(owner)}
    }
    return (names - used) | segments


def _another_python() -> bool:
    """Return whether a program shares semaphores between its processes now.

    Those that nobody has open may be its own: it opens them by name when it needs them.
    """
    return _runs_beside(b"multiprocessing.resource_tracker")


def _runs_beside(word: bytes, ours: Collection[int] = ()) -> bool:
    """Return whether a process that is none of ours has the word in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes() and int(path.parent.name) not in ours:
                return True
        except OSError:  # it has ended
            continue
    return False


def _ours(path: Path) -> bool:
    try:
        return os.geteuid() in {0, path.stat().st_uid}
    except OSError:  # it has just been removed
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
