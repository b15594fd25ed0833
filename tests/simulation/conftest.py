"""Sources with a defect in them."""

import shutil

import pytest

from tests.defects.patch import apply
from tests.simulation.planted import defects
from tests.simulation.simulator_process import ROOT


@pytest.fixture
def broken_sources(tmp_path):
    """Makes a copy of the sources with a planted defect; its folder is the answer."""

    def make(name):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
        apply(defects()[name].patch, tmp_path)
        return tmp_path

    return make
