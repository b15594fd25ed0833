"""Three services that send each other messages, and die at the worst moments."""

import pytest

from examples.chain.chain import Chain, on_files
from tests.outbox.chain_run import ChainRun
from tests.patience import until

ORDERS = 30
DEATHS = {
    "around the network": {
        "orders": ["before publish:1"],
        "payments": ["after publish:1"],
        "mail": ["before commit:3"],
    },
    "around the commit": {
        "orders": ["before commit:9"],
        "payments": ["after commit:4"],
        "mail": ["after commit:7"],
    },
}


@pytest.mark.parametrize("moments", DEATHS)
def test_each_order_is_charged_and_mailed_once_whenever_somebody_dies(moments, tmp_path):
    with Chain(on_files(tmp_path, ORDERS, deadly=DEATHS[moments])) as chain:

        def over():
            chain.tend()
            return all(chain.kills.values()) and chain.settled()

        until(over)
        totals = chain.totals()
    assert (totals.orders, totals.charges, totals.mails) == (ORDERS, ORDERS, ORDERS)
    assert (totals.lost, totals.doubled) == (0, 0)
    assert totals.kills >= 3  # one that cannot reach a slow broker ends, too, and is started again
    assert totals.repeats > 0  # somebody died after the broker had the message


def test_on_two_brokers_and_postgres(tmp_path):
    deadly = {
        "orders": ["after publish:1"],
        "payments": ["before commit:3"],
        "mail": ["after commit:2"],
    }
    with ChainRun(tmp_path, orders=ORDERS, deadly=deadly) as run:

        def over():
            run.chain.tend()
            return all(run.chain.kills.values()) and run.chain.settled()

        until(over)
        totals = run.chain.totals()
    assert (totals.orders, totals.charges, totals.mails) == (ORDERS, ORDERS, ORDERS)
    assert (totals.lost, totals.doubled) == (0, 0)
    assert totals.kills >= 3  # one that cannot reach a slow broker ends, too, and is started again
    assert totals.repeats > 0
