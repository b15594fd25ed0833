"""A call, and the requests that it sends."""

from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.call import Call
from oncekey.core.requests import Claim, Note, Release, Renew, Settle
from oncekey.policy import FUNCTION, Policy, terms

TERMS = terms(FUNCTION)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def reconcile(record):
    """Asked, it says nothing."""


def test_scope_and_key_are_what_makes_it_the_same_call(calling):
    assert calling().identity == ("billing", "charge:42")
    assert calling(scope=None).identity == (None, "charge:42")


def test_people_are_told_its_key_and_scope(calling):
    assert calling().name == "'charge:42' in 'billing'"
    assert calling(scope=None).name == "'charge:42'"


def test_a_claim_says_all_that_the_store_must_know(calling):
    policy = Policy(ttl="1h", lease="10s", max_attempts=3)
    call = calling(policy=policy, fingerprint="1:f", label="charge", reference="trace-1")
    assert call.claim("n1") == Claim(
        "billing",
        "charge:42",
        nonce="n1",
        fingerprint="1:f",
        lease=10_000_000,
        ttl=3_600_000_000,
        on_expired="take",
        max_attempts=3,
        label="charge",
        reference="trace-1",
    )


def test_what_is_to_be_held_is_taken_over_only_by_who_can_reconcile(calling):
    hold = Policy(on_crash="hold")
    assert calling(policy=hold).claim("n").on_expired == "hold"
    assert calling(policy=hold, reconcile=reconcile).claim("n").on_expired == "take"
    assert calling(reconcile=reconcile).claim("n").on_expired == "take"


def test_every_write_proves_who_it_is(calling, recorded):
    call, record = calling(policy=Policy(ttl="1h", lease="10s")), recorded(token=5, nonce="n5")
    place, owner = ("billing", "charge:42"), {"token": 5, "nonce": "n5"}
    lease, ttl = 10_000_000, 3_600_000_000
    assert call.renew(record) == Renew(*place, **owner, lease=lease, ttl=ttl)
    assert call.note(record, b"n", 4) == Note(*place, **owner, noted=b"n", revision=4)
    assert call.settle(record, "completed", result=b"r") == Settle(
        *place, **owner, status="completed", result=b"r", error=None, ttl=ttl
    )
    assert call.settle(record, "failed", error=b"e") == Settle(
        *place, **owner, status="failed", result=None, error=b"e", ttl=ttl
    )
    assert call.release(record) == Release(
        *place,
        **owner,
        error=None,
        uncertain=False,
        hold=False,
        unused=False,
        counted=False,
        bare_ttl=3_600_000_000,
        ttl=ttl,
    )
    given_back = call.release(record, b"e", uncertain=True, hold=True, unused=True)
    assert (given_back.error, given_back.uncertain) == (b"e", True)
    assert (given_back.hold, given_back.unused) == (True, True)
    assert call.release(record, brief=True).bare_ttl == 60_000_000
    counted = calling(policy=Policy(max_attempts=3))
    assert counted.release(record).counted


def test_a_downstream_key_depends_on_the_call_and_the_effect_alone(calling):
    call = calling(fingerprint="1:f")
    key = call.downstream_key("charge")
    assert key == calling(fingerprint="1:f", label="x", policy=Policy(ttl="1s")).downstream_key(
        "charge"
    )
    assert key == "65a9ab8c010aea805168981c49c0c629c0baa272"
    assert len(key) == 40


@given(*(st.tuples(words, words, words, words) for _ in range(2)))
def test_downstream_keys_of_other_calls_and_effects_differ(one, other):
    def made(scope, key, fingerprint, name):
        call = Call(scope=scope, key=key, terms=TERMS, fingerprint=fingerprint)
        return call.downstream_key(name)

    assert (made(*one) == made(*other)) == (one == other)
