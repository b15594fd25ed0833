"""What every store behind a network does by its server's own clock."""

import time

from oncekey.core.requests import Busy, Held, Replay
from oncekey.testing.conformance.base import DONE, LOST, Desk


def real_time():
    """The server's time: it runs on this machine and reads the same clock."""
    return time.time_ns() // 1000


def wait(microseconds):
    """So many have passed."""
    end = real_time() + microseconds
    while (left := end - real_time()) > 0:
        time.sleep(left / 1e6)


class OnRealTime:
    """The server's own clock, which the suite on moved time replaces: here time really passes.

    What must not be over yet has a minute, what must be over a moment: so that a machine that is
    slow today proves the same as a fast one.
    """

    purges = True
    moment = 20_000
    minute = 60_000_000

    def desk(self, store, key="order-1"):
        return Desk(store, lease=self.minute, ttl=self.minute, key=key)

    def test_times_are_the_servers(self, store):
        earliest = real_time()
        answer = self.desk(store).claim("a")
        assert earliest <= answer.now <= real_time()
        record = answer.record
        assert record.started == record.created == record.token == answer.now
        assert record.lease_end == answer.now + self.minute
        assert self.desk(store).read() == record

    def test_every_write_is_dated(self, store):
        desk = self.desk(store)
        owner = desk.grant("a")
        earliest = real_time()
        assert desk.renew(owner) is DONE
        renewed = desk.read()
        assert earliest <= renewed.updated <= real_time()
        assert renewed.lease_end == renewed.updated + self.minute
        assert desk.settle(owner) is DONE
        settled = desk.read()
        assert renewed.updated <= settled.updated == settled.finished <= real_time()
        assert settled.expires == settled.finished + self.minute

    def test_a_lease_that_is_over_is_taken(self, store):
        desk = self.desk(store)
        owner = desk.grant("a", lease=self.moment)
        wait(self.moment)
        second = desk.grant("b")
        assert (second.attempt, second.uncertain, second.finished) == (2, True, owner.lease_end)
        assert second.token > owner.token
        assert type(desk.claim("c")) is Busy
        assert desk.settle(owner) is LOST
        assert desk.settle(second) is DONE
        assert type(desk.claim("c")) is Replay

    def test_a_lease_that_is_over_is_held_where_that_is_asked(self, store):
        desk = self.desk(store)
        owner = desk.grant("a", lease=self.moment)
        wait(self.moment)
        assert type(desk.claim("b", on_expired="hold")) is Held
        assert desk.settle(owner) is DONE  # nobody else was granted it
        assert type(desk.claim("b")) is Replay

    def test_a_renewed_lease_lives_on(self, store):
        desk = self.desk(store)
        owner = desk.grant("a", lease=self.moment)
        assert desk.renew(owner) is DONE
        wait(self.moment)
        assert type(desk.claim("b")) is Busy

    def test_a_life_ends_by_itself(self, store):
        desk = self.desk(store)
        owner = desk.grant("a")
        desk.settle(owner, ttl=self.moment)
        wait(self.moment)
        assert desk.get() is None
        assert store.purge(self.minute, 10) == 0  # it has not been over for so long
        again = desk.grant("b")
        assert (again.attempt, again.token > owner.token) == (1, True)
        desk.settle(again, ttl=self.moment)
        wait(self.moment)
        assert store.purge(0, 10) == self.purges  # else the server does it by itself
        assert store.purge(0, 10) == 0
