"""Every planted defect still fits the code; whether it is seen, `make defects` says."""

import functools
import re
import shutil
from pathlib import Path

import pytest

from tests.defects.__main__ import HERE, read
from tests.defects.patch import apply

ROOT = Path(__file__).parents[2]
PATCHES = sorted(HERE.glob("*.patch"))


@functools.cache
def words_of_tests() -> set[str]:
    """Return the words of all test files and of the published suites, which some inherit."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/oncekey/testing").rglob("*.py")]
    return {word for file in files for word in re.findall(r"\w+", file.read_text())}


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_it_can_be_planted(path, tmp_path):
    defect = read(path)
    assert defect.breaks
    assert defect.tests
    for test in defect.tests:
        file, *names = re.split(r"::|\[", test)
        assert (ROOT / file).is_file(), test
        assert words_of_tests() >= {name for name in names if not name.endswith("]")}, test
    for name in re.findall(r"^--- (?:a/)?(\S+)", defect.patch, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    apply(defect.patch, tmp_path)
