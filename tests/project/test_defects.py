"""Every planted defect still fits the code; whether it is seen, `make defects` says."""

import re
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
    assert defect.tests
    for test in defect.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test
    for name in re.findall(r"^--- (?:a/)?(\S+)", defect.patch, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    apply(defect.patch, tmp_path)
