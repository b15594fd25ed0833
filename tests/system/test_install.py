"""What is built installs in an empty environment, and the first steps of a newcomer work there."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.docs.snippets import blocks

ROOT = Path(__file__).parents[2]
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-q", "-c", ROOT / "constraints.txt")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*words, **options):
    """Run a command that must succeed. Return what it printed."""
    done = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The interpreter of an environment that has the wheel, and what it requires."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    made = folder / "bin" / "python"
    [wheel] = built.glob("*.whl")
    run(made, *PIP, wheel)
    return made


def test_it_requires_msgspec_and_nothing_else(python):
    listed = run(python, "-m", "pip", "list", "--format=freeze").split()
    assert {line.partition("==")[0] for line in listed} - {"pip", "setuptools"} == {
        "msgspec",
        "oncekey",
    }


def test_the_source_distribution_makes_the_same_package(built, python, tmp_path):
    [source] = built.glob("*.tar.gz")
    run(sys.executable, *PIP, "--no-deps", "--no-build-isolation", "--target", tmp_path, source)
    there = {path.relative_to(tmp_path) for path in (tmp_path / "oncekey").rglob("*.py")}
    installed = next(python.parents[1].glob("lib/python*/site-packages"))
    assert there == {path.relative_to(installed) for path in (installed / "oncekey").rglob("*.py")}
    assert (tmp_path / "oncekey" / "py.typed").is_file()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_first_pages_can_be_typed_into_python(page, python, tmp_path):
    code = [
        block.code
        for block in blocks((ROOT / page).read_text("utf-8"))
        if block.language == "python"
    ]
    typed = "\n\n".join([*code, "", "print('typed')", ""])
    done = subprocess.run(
        [python, "-i", "-q"],
        input=typed,
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("typed\n")
    assert "SyntaxError" not in done.stderr
    assert "IndentationError" not in done.stderr
    raised = sum(one.count("# raises ") for one in code)
    assert done.stderr.count("Traceback (most recent call last)") == raised


def test_the_command_says_what_it_needs_until_it_has_it(built, python):
    command = [python.with_name("oncekey"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 2
    assert done.stderr == (
        "oncekey: the command needs typer and rich; pip install 'oncekey[cli]'\n"
    )
    [wheel] = built.glob("*.whl")
    run(python, *PIP, f"{wheel}[cli]")
    assert "dashboard" in run(*command)
