"""Every planted defect still fits the code, and names tests that are there."""

import shutil
from pathlib import Path

import pytest

from tests.defects.__main__ import HERE, read
from tests.defects.patch import apply

ROOT = Path(__file__).parents[2]
PATCHES = sorted(HERE.glob("*.patch"))


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_it_can_be_planted(path, tmp_path):
    defect = read(path)
    assert defect.breaks
    for test in defect.tests:
        file, _, rest = test.partition("::")
        source = (ROOT / file).read_text("utf-8")
        name = rest.rpartition("::")[2].partition("[")[0]
        assert name in source or name in shared(ROOT / file), test
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    apply(defect.patch, tmp_path)


def shared(file: Path) -> str:
    """The suites beside a test file, whose tests it runs."""
    return "".join(one.read_text("utf-8") for one in file.parent.glob("suite*/*.py"))
