"""Fail-overs of Patroni, Sentinel and a Redis Cluster. `make failovers` has many more of each."""

import pytest

from tests.faults.matrix.program import STORES, chosen, laboratory, run
from tests.faults.matrix.rows import FAIL_OVERS


@pytest.mark.parametrize("row", FAIL_OVERS)
def test_what_is_promised_holds_whoever_leads(row):
    with laboratory(small=True) as lab:
        for entry in chosen([row], list(STORES)):
            done = run(lab, entry)
            assert done.passed, done
            assert done.result.notes["fail-overs"] > 0
