"""The chain of three services at random: processes, brokers and the database are killed."""

from tests.outbox.chain_run import ChainRun

ORDERS = 300


def test_everything_is_killed_at_random_and_each_order_is_charged_and_mailed_once(tmp_path):
    with ChainRun(tmp_path, orders=ORDERS, pace=0.02, seed=3) as run:
        totals = run.run(every=0.6, longest=20)
    assert (totals.orders, totals.charges, totals.mails) == (ORDERS, ORDERS, ORDERS)
    assert (totals.lost, totals.doubled) == (0, 0)
    assert totals.kills
    assert any(run.strikes.values())
