"""What the matrix makes of a run, where the answer of one worker was found by another."""

import threading

from oncekey.engine.chores import Renewal
from tests.faults.matrix.points import Failpoints
from tests.faults.matrix.spec import Spec
from tests.faults.matrix.verdict import judge
from tests.faults.matrix.worker import Threads
from tests.patience import PATIENCE


class OnePoint(Failpoints):
    """A worker stands still behind its effect, as a starved one does, until it may go on."""

    def __init__(self):
        super().__init__([], "")
        self.reached, self.go_on = threading.Event(), threading.Event()

    def passing(self, point):
        if point == "after_effect":
            self.reached.set()
            assert self.go_on.wait(PATIENCE)


def test_an_effect_that_reconcile_finds_was_made_by_whoever_lost_its_lease(tmp_path, monkeypatch):
    monkeypatch.setattr(Renewal, "do", lambda _: None)  # it is too slow to renew its lease

    def worker(name):
        place = f"sqlite:///{tmp_path}/records.db"
        return Threads(
            Spec(
                name=name,
                folder=str(tmp_path),
                place=place,
                mode="reconciled",
                keys=1,
                callers=1,
                lease="100ms",
            )
        )

    first, second = worker("first"), worker("second")
    points = first.work.points = OnePoint()
    starved = threading.Thread(target=first.run)
    starved.start()
    try:
        assert points.reached.wait(PATIENCE)
        second.run()  # takes over, asks `reconcile`, and is told of the effect
    finally:
        points.go_on.set()
        starved.join()
    figures = judge(tmp_path, "reconciled")
    assert (figures.operations, figures.asked_again) == (2, 0)
    assert figures.told == {"lost": 1}
    assert figures.clean, figures
