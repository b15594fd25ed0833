"""Rules of the tree that no linter checks."""

import io
import os
import re
import subprocess
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

EMPTY_NAMES = {"util", "helper", "common", "misc", "manager"}

# The brackets keep the patterns from matching themselves.
REGISTRY = re.compile(
    r"py[p]i\.org|python[h]osted\.org|npm[j]s\.(?:org|com)|ana[c]onda\.(?:org|com)"
    r"|j[f]rog\.io|[d]ocker\.io|gh[c]r\.io|qu[a]y\.io|--(?:extra-)?[i]ndex-url|--find-[l]inks"
)
MACHINE_PATH = re.compile(
    r"(?<![\w.~$}])/(?:[h]ome|[U]sers|[w]ork)/\w|(?<![\w.~$}])/[r]oot\b|\b[A-Z]:\\\\?[U]sers\b"
)

DIRECTIVE = re.compile(
    r"(?:ruff: *)?\bnoqa\b(?:: *[A-Z]+\d+(?:[, ]+[A-Z]+\d+)*)?"
    r"|\bruff: *(?:ignore|disable|enable|file-ignore)(?:\[[^\]]*\])?"
    r"|\btype: *ignore(?:\[[^\]]*\])?"
    r"|\b(?:based)?pyright: *(?:ignore(?:\[[^\]]*\])?|(?:basic|standard|strict)\b|\w+ *= *\w+)"
    r"|\bmypy: *[\w-]+(?: *= *[\w-]+)?"
    r"|\bpragma: *no *(?:cover|branch)\b"
)
FEWEST_WORDS = 2


def tree_files() -> list[Path]:
    """List what git tracks or would add, or, without git, every file outside generated folders."""
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        listed = subprocess.run(git, cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        found = (path for path in ROOT.rglob("*") if not generated(path.relative_to(ROOT)))
    else:
        found = (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def generated(path: Path) -> bool:
    hidden = {part for part in path.parts[:-1] if part.startswith(".")} - {".ci"}
    return bool(hidden or {"__pycache__", "_build", "build", "dist"} & set(path.parts))


def lacks_reason(comment: str) -> bool:
    """Tell whether a comment switches a check off without saying why."""
    if not DIRECTIVE.search(comment):
        return False
    return len(re.findall(r"[A-Za-z']{2,}|\ba\b", DIRECTIVE.sub("", comment))) < FEWEST_WORDS


def comments(path: Path) -> list[tuple[int, str]]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("pattern", [REGISTRY, MACHINE_PATH], ids=["registry", "machine"])
def test_no_file_names_a_registry_or_a_place_on_a_developers_machine(pattern):
    found = [
        f"{relative(path)}: {match[0]}"
        for path in tree_files()
        for match in pattern.finditer(path.read_text("utf-8", errors="ignore"))
    ]
    assert not found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (REGISTRY, "https://py" + "pi.org/simple"),
        (REGISTRY, "--extra-" + "index-url x"),
        (MACHINE_PATH, "see /" + "home/ann/code"),
        (MACHINE_PATH, '"/' + 'root"'),
        (MACHINE_PATH, "file:///" + "work/x"),
        (MACHINE_PATH, "C:\\" + "Users"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern, text):
    assert pattern.search(text)


def test_the_files_of_the_tree_are_found():
    names = {relative(path) for path in tree_files()}
    assert {"pyproject.toml", "Makefile", ".ci/run", "tests/project/test_tree.py"} <= names
    assert not [name for name in names if name.startswith((".venv/", ".git/"))]


def test_there_is_no_lock_file_of_another_tool():
    assert not [path for path in tree_files() if path.name == "uv.lock"]


def test_nothing_that_a_run_has_left_behind_is_part_of_the_tree():
    left = (".db", ".db-wal", ".db-shm", ".orig", ".rej", ".log", ".pyc")
    assert not [relative(path) for path in tree_files() if path.name.endswith(left)]


def test_constraints_are_names_and_versions():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]


def test_ci_runs_make_test_and_nothing_gentler():
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert run.read_text("utf-8").splitlines()[-2:] == ["make test", "make test-servers"]


def test_the_changelog_has_a_place_for_the_next_change():
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_there_are_sources():
    assert SOURCES
    assert (ROOT / "src" / "oncekey" / "py.typed").is_file()


def test_no_module_has_a_name_that_says_nothing():
    names = {
        part for path in SOURCES for part in path.relative_to(ROOT / "src").with_suffix("").parts
    }
    words = {word.removesuffix("s") for name in names for word in name.split("_")}
    assert not words & EMPTY_NAMES


def test_whatever_switches_a_check_off_says_why():
    bare = [
        f"{relative(path)}:{line}: {comment}"
        for path in SOURCES
        for line, comment in comments(path)
        if lacks_reason(comment)
    ]
    assert not bare


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: BLE001",
        "# noqa: BLE001, S110",
        "# noqa: BLE001  # because",
        "# type: ignore[arg-type]",
        "# type: ignore[arg-type]  # noqa: PGH003",
        "# pyright: ignore[reportPrivateUsage]",
        "# pragma: no cover",
        "# ruff: noqa: D100",
    ],
)
def test_a_bare_directive_is_noticed(comment):
    assert lacks_reason(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "# any other comment",
        "# noqa: BLE001  # an observer must not break the call",
        "# noqa: BLE001 - an observer must not break the call",
        "# type: ignore[arg-type]  # the stub lacks this overload",
        "# pragma: no cover - only reached when the process dies",
    ],
)
def test_a_reasoned_directive_and_other_comments_pass(comment):
    assert not lacks_reason(comment)


def test_every_ignored_rule_has_its_reason_beside_it():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    lint = tomllib.loads(text)["tool"]["ruff"]["lint"]
    ignored = {
        *lint["ignore"],
        *(code for codes in lint["per-file-ignores"].values() for code in codes),
    }
    lines = re.findall(r'^ +"([A-Z]+\d*)",(.*)$', text, re.MULTILINE)
    assert {code for code, _ in lines} == ignored
    assert not [code for code, rest in lines if not re.match(r" +# \w+.* \w+", rest)]
