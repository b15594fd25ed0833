"""Policies: checked where they are written, laid over one another, turned into terms."""

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta

import pytest

from oncekey.errors import ConfigurationError
from oncekey.policy import FUNCTION, Policy, PolicyFields, from_environment, terms

DAY = 86_400_000_000
NAMES = [field.name for field in fields(Policy) if field.init]


def test_the_keyword_arguments_are_exactly_the_fields():
    assert list(PolicyFields.__annotations__) == NAMES


def test_a_policy_does_not_change():
    policy = Policy(ttl="1h")
    with pytest.raises(FrozenInstanceError):
        policy.ttl = "2h"


def test_policies_with_the_same_fields_are_equal_and_hash_alike():
    assert Policy(ttl="1h", keep=ValueError) == Policy(ttl="1h", keep=(ValueError,))
    assert hash(Policy(ttl="1h")) == hash(Policy(ttl="1h"))
    assert Policy(ttl="1h") != Policy(ttl="2h")
    assert "_seconds" not in repr(Policy(ttl="1h"))


@pytest.mark.parametrize("name", ["ttl", "lease", "max_run", "retry_after"])
@pytest.mark.parametrize("value", [0, "0s", -1, timedelta(seconds=-1)])
def test_a_duration_of_zero_or_less_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} must be more than zero"):
        Policy(**{name: value})


@pytest.mark.parametrize("name", ["wait", "quiet"])
def test_waiting_and_quiet_may_be_zero_but_not_less(name):
    assert getattr(Policy(**{name: 0}), name) == 0
    with pytest.raises(ConfigurationError, match=f"^{name} must be zero or more"):
        Policy(**{name: -1})


@pytest.mark.parametrize("name", ["ttl", "lease", "max_run", "retry_after", "wait", "quiet"])
def test_a_duration_that_cannot_be_read_names_its_field(name):
    with pytest.raises(ConfigurationError, match=f"^{name} must be a duration"):
        Policy(**{name: "soon"})


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("on_error", ("release", "keep")),
        ("on_crash", ("retry", "hold")),
        ("fail_mode", ("open", "closed")),
    ],
)
def test_a_choice_is_one_of_its_words(name, choices):
    for choice in choices:
        assert getattr(Policy(**{name: choice}), name) == choice
    with pytest.raises(ConfigurationError) as caught:
        Policy(**{name: "maybe"})
    assert str(caught.value) == f"{name} must be one of {', '.join(choices)}, but it is 'maybe'"


@pytest.mark.parametrize("name", ["keep", "uncertain"])
def test_exceptions_are_one_type_or_a_tuple_of_them(name):
    assert getattr(Policy(**{name: ValueError}), name) == (ValueError,)
    assert getattr(Policy(**{name: (KeyError, OSError)}), name) == (KeyError, OSError)
    assert getattr(Policy(**{name: ()}), name) == ()


@pytest.mark.parametrize("name", ["keep", "uncertain"])
@pytest.mark.parametrize("wrong", ["ValueError", int, ValueError(), [ValueError], (KeyError, 3)])
def test_anything_but_exception_types_is_refused(name, wrong):
    held = 3 if isinstance(wrong, tuple) else wrong
    with pytest.raises(ConfigurationError) as caught:
        Policy(**{name: wrong})
    assert str(caught.value) == (
        f"{name} must be an exception type or a tuple of them, but it holds {held!r}"
    )


@pytest.mark.parametrize("wrong", [1, 0, "on"])
def test_a_heartbeat_is_on_or_off(wrong):
    assert Policy(heartbeat=False).heartbeat is False
    with pytest.raises(ConfigurationError, match=r"^heartbeat must be True or False"):
        Policy(heartbeat=wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_attempts_are_counted_in_whole_numbers_above_zero(wrong):
    assert Policy(max_attempts=1).max_attempts == 1
    with pytest.raises(ConfigurationError) as caught:
        Policy(max_attempts=wrong)
    assert str(caught.value) == (
        f"max_attempts must be a whole number above zero, but it is {wrong!r}"
    )


def test_the_largest_result_is_a_size():
    assert Policy(max_result="2KiB").max_result == 2048
    with pytest.raises(ConfigurationError, match=r"^max_result must be a number of bytes"):
        Policy(max_result=0)


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="tll"):
        Policy(tll="1h")


def test_the_policy_above_wins_and_leaves_the_rest_to_the_one_below():
    above = Policy(ttl="1h", keep=(KeyError,), heartbeat=False, wait=0)
    below = Policy(ttl="2h", lease="1min", heartbeat=True, max_result="1KiB", wait="5s")
    both = above.over(below)
    assert both == Policy(
        ttl="1h", keep=(KeyError,), heartbeat=False, wait=0, lease="1min", max_result=1024
    )


def test_no_field_gets_lost_on_the_way_down():
    said = Policy(
        ttl="1h",
        lease="2min",
        heartbeat=False,
        max_run="3min",
        wait="4s",
        retry_after="5s",
        on_error="keep",
        keep=KeyError,
        uncertain=OSError,
        definite=FileNotFoundError,
        on_crash="hold",
        max_attempts=6,
        fail_mode="open",
        max_result="7KiB",
        quiet="8s",
    )
    assert all(getattr(said, name) is not None for name in NAMES)
    assert Policy().over(said) == said
    assert said.over(FUNCTION) == said
    made = terms(said.over(FUNCTION))
    assert (made.ttl, made.lease, made.heartbeat) == (3_600_000_000, 120_000_000, False)
    assert (made.max_run, made.wait, made.retry_after) == (180.0, 4.0, 5.0)
    assert (made.keep_all, made.keep, made.uncertain) == (True, (KeyError,), (OSError,))
    assert made.definite == (FileNotFoundError,)
    assert (made.hold, made.max_attempts, made.fail_open) == (True, 6, True)
    assert (made.max_result, made.quiet) == (7168, 8_000_000)


def test_what_holds_where_nobody_says_otherwise():
    made = terms(Policy().over(FUNCTION))
    assert (made.ttl, made.lease, made.heartbeat) == (DAY, 300_000_000, True)
    assert (made.max_run, made.wait, made.retry_after) == (None, 10.0, 1.0)
    assert (made.keep_all, made.keep) == (False, ())
    assert made.uncertain == (TimeoutError, ConnectionError)
    assert (made.hold, made.max_attempts, made.fail_open) == (False, None, False)
    assert made.max_result == 1_048_576


def test_the_quiet_period_is_twice_the_lease_unless_it_is_set_even_to_none():
    assert terms(Policy(lease="10s").over(FUNCTION)).quiet == 20_000_000
    assert terms(Policy(lease="10s", quiet="3s").over(FUNCTION)).quiet == 3_000_000
    assert terms(Policy(lease="10s", quiet=0).over(FUNCTION)).quiet == 0


def test_a_lease_is_renewed_at_a_third_of_its_length():
    assert terms(Policy(lease="30s").over(FUNCTION)).heartbeat_every == pytest.approx(10)


def test_the_environment_sets_four_fields():
    policy = from_environment(
        {
            "ONCEKEY_TTL": "7d",
            "ONCEKEY_LEASE": "30s",
            "ONCEKEY_WAIT": "0s",
            "ONCEKEY_FAIL_MODE": "open",
            "ONCEKEY_MAX_ATTEMPTS": "3",
        }
    )
    assert policy == Policy(ttl="7d", lease="30s", wait="0s", fail_mode="open")


def test_an_empty_environment_says_nothing():
    assert from_environment({}) == Policy()
    assert from_environment({"ONCEKEY_TTL": ""}) == Policy()


def test_a_mistake_in_the_environment_says_where_it_was_made():
    with pytest.raises(ConfigurationError) as caught:
        from_environment({"ONCEKEY_FAIL_MODE": "ajar"})
    assert str(caught.value) == (
        "the environment sets ONCEKEY_*: fail_mode must be one of open, closed, but it is 'ajar'"
    )


def test_a_single_use_beats_the_once_which_beats_the_environment_which_beats_the_surface():
    surface, environment = FUNCTION, from_environment({"ONCEKEY_TTL": "4h", "ONCEKEY_WAIT": "4s"})
    once, use = Policy(ttl="3h", lease="3min"), Policy(ttl="2h")
    made = terms(use.over(once).over(environment).over(surface))
    assert made.ttl == 2 * 3_600_000_000
    assert made.lease == 180_000_000
    assert made.wait == 4.0
    assert made.retry_after == 1.0
