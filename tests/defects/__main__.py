"""Plants each defect in a copy of the project and sees its test go red: python -m tests.defects

A defect is a patch beside this file. Its first lines say what it breaks and which tests must
fail then. The same tests are green without it, which is seen first. A few of them need the programs
that `make test-servers` installs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from tests.defects.patch import apply

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPIED = ("src", "tests", "docs", "examples", "npm", "Makefile", "pyproject.toml")
FAILED = 1  # pytest's exit code for tests that ran and failed; an error has another
HUNG = -1
PATIENCE = 900
TESTS_PATIENCE = "60"
"""Seconds. A test that waits for what a defect prevents shall not do so for long."""


class Defect(NamedTuple):
    name: str
    breaks: str
    tests: list[str]
    patch: str


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", help="only these defects")
    arguments.add_argument("--jobs", type=int, default=2)
    wanted = arguments.parse_args()
    defects = [read(path) for path in sorted(HERE.glob("*.patch"))]
    if wanted.names:
        defects = [defect for defect in defects if defect.name in wanted.names]
    if not defects:
        print("no such defect")
        return 2
    print(f"{len(defects)} defects; first their tests without them", flush=True)
    named = sorted({test for defect in defects for test in defect.tests})
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder, "original")
        copy_project(original)
        code, printed = run(None, named, original, Path(folder, "all"), jobs=wanted.jobs)
        if code != 0:
            print(printed)
            print("the tests are red without any defect")
            return 1
        folders: Queue[Path] = Queue()
        for number in range(wanted.jobs):
            folders.put(Path(folder, str(number)))
        with ThreadPoolExecutor(wanted.jobs) as pool:
            seen = pool.map(lambda one: plant(one, original, folders), defects)
            missed = sum(not red for red in seen)
    print(f"{len(defects) - missed} of {len(defects)} defects were seen")
    return 1 if missed else 0


def read(path: Path) -> Defect:
    """A patch whose head has the lines `breaks: ...` and `red: test`, one or more."""
    head, _, patch = path.read_text().partition("\n--- ")
    lines = [line.partition(": ") for line in head.splitlines()]
    breaks = " ".join(text for word, _, text in lines if word == "breaks")
    tests = [text for word, _, text in lines if word == "red"]
    if not breaks or not tests:
        msg = f"{path.name} must say what it `breaks:` and which tests go `red:`"
        raise SystemExit(msg)
    return Defect(path.stem, breaks, tests, f"--- {patch}")


def plant(defect: Defect, original: Path, folders: Queue[Path]) -> bool:
    """Whether every test named by the defect fails with it, in a folder that nobody else uses."""
    unseen = []
    folder = folders.get()
    for test in defect.tests:
        code, printed = run(defect.patch, [test], original, folder)
        if code != FAILED:
            unseen.append(f"{test} (exit code {code})\n{printed}")
    folders.put(folder)
    verdict = "red" if not unseen else "NOT SEEN"
    print(f"  {verdict:9} {defect.name}: {defect.breaks}", flush=True)
    for one in unseen:
        print(f"            {one}", flush=True)
    return not unseen


def copy_project(original: Path) -> None:
    """Copy what the tests need of the project."""
    original.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "_build")
            shutil.copytree(source, original / name, ignore=ignored)
        else:
            shutil.copy2(source, original / name)


def run(
    patch: str | None, tests: list[str], original: Path, folder: Path, jobs: int = 0
) -> tuple[int, str]:
    """The exit code of these tests in a copy of the project, and what they printed last.

    The copy is new each time, and its files are links to those of `original`, which take no time to
    make. Compiled modules are kept beside it, so that only what the patch changes is compiled.
    """
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy, copy_function=os.link)
    if patch is not None:
        apply(patch, copy)
    spread = ["-n", str(jobs), "--dist", "loadgroup"] if jobs else []
    shell = {name: word for name, word in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *spread, *tests],
            cwd=copy,
            env={
                **shell,
                "ONCEKEY_TEST_PATIENCE": TESTS_PATIENCE,
                "PYTHONPATH": str(copy / "src"),
                "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
            },
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=PATIENCE if patch is not None else None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HUNG, "it hangs: a test must end to be red"
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


if __name__ == "__main__":
    sys.exit(main())
