"""Every planted defect still fits the code; whether it is seen, `make defects` says."""

import re
import shutil
import subprocess
import sys
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
    for name in re.findall(r"^--- (?:a/)?(\S+)", defect.patch, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    apply(defect.patch, tmp_path)


def test_every_test_that_a_defect_names_exists():
    named = sorted({test for path in PATCHES for test in read(path).tests})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr[-2000:]
