"""The fine points of the rules, each a pure call."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from oncekey.core import machine
from oncekey.core.machine import DAY, HOUR, TABLE
from oncekey.core.record import Record
from oncekey.core.requests import (
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Mismatch,
    Note,
    Release,
    Renew,
    Replay,
    Resolve,
    Settle,
    Spent,
    Verdict,
)
from oncekey.testing import FakeClock
from oncekey.testing.conformance.base import Desk
from oncekey.testing.conformance.table import SCENES
from oncekey.testing.reference import RULES, Reference

NOW = 1_767_225_600_000_000
LEASE = 1_000
TTL = 2_000
PLACE = ("scope", "key")
PROOF: dict[str, Any] = {"token": NOW, "nonce": "a"}

CLAIM = Claim(*PLACE, nonce="b", fingerprint="1:x", lease=LEASE, ttl=TTL)
RUNNING = Record(
    scope="scope",
    key="key",
    status="running",
    fingerprint="1:x",
    token=NOW,
    nonce="a",
    attempt=1,
    lease_end=NOW + LEASE,
    created=NOW,
    started=NOW,
    updated=NOW,
    expires=NOW + LEASE + DAY,
)
RELEASED = replace(RUNNING, status="released", finished=NOW, expires=NOW + HOUR)
HELD = replace(RUNNING, status="held", uncertain=True, finished=NOW, expires=0)
COMPLETED = replace(RUNNING, status="completed", result=b"r", finished=NOW, expires=NOW + TTL)

RENEW = Renew(*PLACE, **PROOF, lease=LEASE, ttl=TTL)
NOTE = Note(*PLACE, **PROOF, noted=b"noted", revision=1)
SETTLE = Settle(*PLACE, **PROOF, status="completed", result=b"r", error=None, ttl=TTL)
RELEASE = Release(
    *PLACE,
    **PROOF,
    error=b"e",
    uncertain=False,
    hold=False,
    unused=False,
    counted=False,
    bare_ttl=LEASE,
    ttl=TTL,
)
RESOLVE = Resolve(*PLACE, token=NOW, status="completed", result=b"s", error=None, ttl=TTL)
FORGET = Forget(*PLACE, token=NOW, force=True)


class Recorder(Reference):
    """Calls each rule on copies, and looks whether it left its input alone."""

    def _apply(self, rule, ask):
        before = self.records.get((ask.scope or "", ask.key))
        copies = copy.copy(before), copy.copy(ask)
        first = rule(before, ask, self.clock())
        assert (before, ask) == copies
        assert rule(before, ask, self.clock()) == first
        return super()._apply(rule, ask)


@pytest.mark.parametrize("row", TABLE, ids=" - ".join)
def test_the_rules_leave_their_input_alone_and_answer_the_same_twice(row):
    clock = FakeClock()
    SCENES[row.status, row.verb, row.when](
        Desk(Recorder(clock), lease=LEASE, ttl=TTL), clock.tick
    )()


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RUNNING.status = "completed"  # type: ignore[misc]  # that is what is tried


# Where a lease ends


@pytest.mark.parametrize(
    ("moment", "answer"), [(LEASE - 1, Busy), (LEASE, Granted), (LEASE + 1, Granted)]
)
def test_a_lease_ends_exactly_at_its_end(moment, answer):
    assert type(machine.claim(RUNNING, CLAIM, NOW + moment)[1]) is answer


@pytest.mark.parametrize(("moment", "answer"), [(LEASE - 1, Busy), (LEASE, Held)])
@pytest.mark.parametrize("how", [{"on_expired": "hold"}, {"max_attempts": 1}])
def test_a_lease_under_hold_ends_exactly_at_its_end(moment, answer, how):
    ask = replace(CLAIM, **how)
    assert type(machine.claim(RUNNING, ask, NOW + moment)[1]) is answer


def test_one_attempt_more_than_used_is_enough():
    assert type(machine.claim(RUNNING, replace(CLAIM, max_attempts=2), NOW + LEASE)[1]) is Granted


# Where a record ends


@pytest.mark.parametrize("record", [RUNNING, RELEASED, COMPLETED], ids=lambda r: r.status)
def test_a_record_ends_exactly_when_it_expires(record):
    ask = replace(CLAIM, fingerprint="1:other")
    fresh, answer = machine.claim(record, ask, record.expires)
    assert type(answer) is Granted
    assert (fresh.attempt, fresh.created, fresh.fingerprint) == (1, record.expires, "1:other")
    last = machine.claim(replace(record, noted=b"n"), ask, record.expires - 1)[1]
    assert type(last) is Mismatch


@pytest.mark.parametrize("ask", [RENEW, NOTE, SETTLE, RELEASE], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("record", [RUNNING, RELEASED, COMPLETED], ids=lambda r: r.status)
def test_an_expired_record_has_no_owner(record, ask):
    rule = RULES[type(ask)]
    assert rule(record, ask, record.expires) == (record, Verdict.LOST)
    assert rule(record, ask, record.expires - 1)[1] is not Verdict.LOST


def test_an_expired_record_is_forgotten_whatever_was_read():
    ask = replace(FORGET, token=1, force=False)
    assert machine.forget(RUNNING, ask, RUNNING.expires) == (None, Verdict.DONE)
    assert machine.forget(RUNNING, ask, RUNNING.expires - 1) == (RUNNING, Verdict.LOST)


def test_a_held_record_never_expires():
    assert not machine.expired(HELD, NOW + 1000 * DAY)
    assert not machine.purgeable(HELD, NOW + 1000 * DAY, 0)


def test_a_record_may_be_purged_when_the_grace_period_is_over():
    assert not machine.purgeable(COMPLETED, COMPLETED.expires - 1, 0)
    assert machine.purgeable(COMPLETED, COMPLETED.expires, 0)
    assert not machine.purgeable(COMPLETED, COMPLETED.expires + 9, 10)
    assert machine.purgeable(COMPLETED, COMPLETED.expires + 10, 10)


# Tokens


@given(back=st.integers(-5 * DAY, 5 * DAY), ahead=st.integers(0, 10))
def test_a_new_token_is_larger_than_the_last_one_and_the_time_whatever_the_clock_does(back, ahead):
    now = NOW + back
    record = replace(RELEASED, token=NOW + ahead, expires=NOW + 10 * DAY)
    token = machine.claim(record, CLAIM, now)[0].token
    assert token == max(record.token + 1, now)


def test_the_token_of_an_expired_record_still_counts():
    ahead = replace(COMPLETED, token=COMPLETED.expires + 5)
    assert machine.claim(ahead, CLAIM, COMPLETED.expires)[0].token == ahead.token + 1


def test_the_first_token_is_the_time():
    assert machine.claim(None, CLAIM, NOW)[0].token == NOW


def test_resolve_takes_a_token_of_its_own():
    ask = replace(RESOLVE, status="released")
    for one in (RESOLVE, ask):
        after, verdict = machine.resolve(HELD, one, NOW)
        assert verdict is Verdict.DONE
        assert after is not None
        assert after.token == NOW + 1


# Judged first


@pytest.mark.parametrize("nonce", ["a", "b"])
@pytest.mark.parametrize("now", [NOW, NOW + LEASE])
@pytest.mark.parametrize(
    "record",
    [RUNNING, HELD, COMPLETED, replace(RELEASED, noted=b"n")],
    ids=lambda record: record.status,
)
def test_a_mismatch_comes_before_everything_else(record, now, nonce):
    ask = replace(CLAIM, nonce=nonce, fingerprint="1:y", on_expired="hold", max_attempts=1)
    after, answer = machine.claim(record, ask, now)
    assert after is record
    assert answer == Mismatch(record, now)


def test_a_spent_nonce_is_spent_also_for_another_meaning():
    ask = replace(CLAIM, nonce="a", fingerprint="1:y")
    assert machine.claim(RELEASED, ask, NOW)[1] == Spent(RELEASED, NOW)


def test_a_replay_does_not_count_attempts():
    ask = replace(CLAIM, max_attempts=1, on_expired="hold")
    assert machine.claim(COMPLETED, ask, NOW)[1] == Replay(COMPLETED, NOW)


@pytest.mark.parametrize(
    ("kept", "asked", "after"),
    [("1:x", None, "1:x"), (None, "1:x", "1:x"), ("1:x", "2:y", "2:y"), (None, None, None)],
)
def test_the_next_attempt_knows_the_fingerprint_if_anybody_does(kept, asked, after):
    record = replace(RUNNING, fingerprint=kept)
    ask = replace(CLAIM, fingerprint=asked)
    assert machine.claim(record, ask, NOW + LEASE)[0].fingerprint == after


# Until when a record lives, and since when it is uncertain


@pytest.mark.parametrize(("ttl", "longer"), [(1, DAY), (DAY + 1, DAY + 1)])
def test_a_running_record_outlives_its_lease_by_a_day_or_its_ttl(ttl, longer):
    granted = machine.claim(None, replace(CLAIM, ttl=ttl), NOW)[0]
    assert granted.expires == granted.lease_end + longer
    renewed = machine.renew(RUNNING, replace(RENEW, ttl=ttl), NOW + 7)[0]
    assert renewed is not None
    assert renewed.lease_end == NOW + 7 + LEASE
    assert renewed.expires == renewed.lease_end + longer


@pytest.mark.parametrize("ttl", [1, 7 * DAY])
@pytest.mark.parametrize(
    ("noted", "ways", "remembered"),
    [
        (b"n", {}, True),
        (b"", {"uncertain": True}, True),
        (b"", {"counted": True}, True),
        (b"", {"counted": True, "unused": True}, False),
        (b"", {"unused": True}, False),
        (b"", {}, False),
    ],
)
def test_a_released_record_lives_as_long_as_it_is_of_use(noted, ways, remembered, ttl):
    record = replace(RUNNING, noted=noted)
    after = machine.release(record, replace(RELEASE, ttl=ttl, bare_ttl=HOUR, **ways), NOW)[0]
    assert after is not None
    assert after.expires == NOW + (max(ttl, DAY) if remembered else HOUR)


def test_no_later_attempt_shortens_what_an_uncertain_end_was_promised():
    promised = NOW + 9 * DAY
    uncertain = replace(RELEASED, uncertain=True, expires=promised)
    second = machine.claim(uncertain, CLAIM, NOW)[0]
    proof = {"token": second.token, "nonce": second.nonce}
    renewed = machine.renew(second, replace(RENEW, **proof), NOW)[0]
    released = machine.release(renewed, replace(RELEASE, **proof), NOW)[0]
    assert (second.expires, renewed.expires, released.expires) == (promised, promised, promised)


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("hold", [False, True])
def test_an_end_is_dated_by_the_last_uncertain_one(uncertain, hold):
    since = replace(RUNNING, uncertain=True, finished=NOW - 5)
    after = machine.release(since, replace(RELEASE, uncertain=uncertain, hold=hold), NOW)[0]
    assert after is not None
    assert after.uncertain
    assert after.finished == (NOW if uncertain else NOW - 5)


def test_an_older_note_leaves_the_record_as_it_is():
    noted = replace(RUNNING, noted=b"newer", revision=2)
    after, verdict = machine.note(noted, replace(NOTE, revision=2), NOW + 1)
    assert verdict is Verdict.DONE
    assert after is noted


def test_a_refused_write_gives_the_very_record_back():
    for ask in (RENEW, NOTE, SETTLE, RELEASE):
        stranger = replace(ask, nonce="b")
        after, verdict = RULES[type(ask)](RUNNING, stranger, NOW)
        assert verdict is Verdict.LOST
        assert after is RUNNING
    assert machine.resolve(RUNNING, RESOLVE, NOW)[0] is RUNNING
    assert machine.forget(RUNNING, replace(FORGET, force=False), NOW)[0] is RUNNING


def test_settling_keeps_everything_else():
    noted = replace(RUNNING, noted=b"n", revision=3, label="l", reference="f", attempt=4)
    after = machine.settle(noted, SETTLE, NOW + 1)[0]
    assert after is not None
    told = {"status", "result", "error", "uncertain", "updated", "finished", "expires"}
    before = {name: value for name, value in asdict(noted).items() if name not in told}
    assert before.items() <= asdict(after).items()


@pytest.mark.parametrize("fingerprint", ["1:x", "1:y", "2:y", None])
@pytest.mark.parametrize("kept", ["1:x", None])
@pytest.mark.parametrize("status", ["running", "completed", "failed", "released", "held"])
@pytest.mark.parametrize("expires", [0, NOW, NOW + 1])
def test_the_short_question_has_the_answer_of_the_long_one(status, kept, fingerprint, expires):
    record = replace(COMPLETED, status=status, fingerprint=kept, expires=expires)
    _, answer = machine.claim(record, replace(CLAIM, fingerprint=fingerprint), NOW)
    assert machine.answers(record, fingerprint, NOW) == isinstance(answer, Replay)
