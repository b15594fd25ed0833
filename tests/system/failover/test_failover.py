"""Fail-overs of Redis, each fault once. `make failovers` has many, and those of Patroni (F30)."""

import pytest

from tests.faults.matrix.program import STORES, chosen, laboratory, run

# Not F30: beside other tests Patroni may get no processor for longer than it trusts a node.
ROWS = ("F31", "F32")


@pytest.mark.parametrize("row", ROWS)
def test_what_is_promised_holds_whoever_leads(row):
    with laboratory(small=True) as lab:
        for entry in chosen([row], list(STORES)):
            done = run(lab, entry)
            assert done.passed, (done.store, done.surface, done.result)
            assert done.result.notes["fail-overs"] > 0
