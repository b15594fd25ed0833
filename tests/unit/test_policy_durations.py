"""Durations and sizes as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.errors import ConfigurationError
from oncekey.policy import microseconds, seconds, size

AT_MOST = "^{} and at most a hundred years, but it is "
UNITS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "": 1}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("100ms", 0.1),
        ("5s", 5),
        ("5min", 300),
        ("5m", 300),
        ("24h", 86_400),
        ("7d", 604_800),
        ("1.5h", 5_400),
        (" 5 min ", 300),
        ("3", 3),
        (30, 30),
        (0.25, 0.25),
        (timedelta(days=1, seconds=1), 86_401),
    ],
)
def test_a_duration_is_read_as_it_is_written(written, expected):
    assert seconds(written, "ttl") == pytest.approx(expected)


@given(st.integers(1, 36_600), st.sampled_from(sorted(UNITS)))
def test_every_unit_means_what_it_says(number, unit):
    assert seconds(f"{number}{unit}", "ttl") == pytest.approx(number * UNITS[unit])


@pytest.mark.parametrize(
    "written", [0, 0.0, "0s", timedelta(0), -1, -0.5, timedelta(seconds=-1), float("inf"), "36601d"]
)
def test_a_duration_that_must_last_is_more_than_zero(written):
    with pytest.raises(ConfigurationError, match=AT_MOST.format("ttl must be more than zero")):
        seconds(written, "ttl")


def test_a_hundred_years_are_the_longest():
    assert seconds("36600d", "ttl") == 36_600 * 86_400
    with pytest.raises(ConfigurationError):
        seconds(36_600 * 86_400 + 1, "ttl")


def test_zero_is_a_duration_where_it_may_be():
    assert seconds(0, "wait", zero=True) == 0
    assert seconds("0s", "wait", zero=True) == 0


@pytest.mark.parametrize("written", [-1, float("nan"), float("inf"), "9" * 400 + "d"])
def test_no_duration_is_negative_or_endless(written):
    with pytest.raises(ConfigurationError, match=AT_MOST.format("wait must be zero or more")):
        seconds(written, "wait", zero=True)


@pytest.mark.parametrize(
    "written", ["", "5 minutes", "-5s", "5 s s", "1h30m", "s", True, False, None, b"5s", [5]]
)
def test_anything_else_is_told_how_a_duration_is_written(written):
    with pytest.raises(ConfigurationError) as caught:
        seconds(written, "lease")
    assert str(caught.value) == (
        'lease must be a duration such as "100ms", "5s", "5min", "24h" or "7d", '
        f"a number of seconds or a timedelta, but it is {written!r}"
    )


def test_a_number_that_no_float_can_hold_is_refused_in_the_same_words():
    with pytest.raises(ConfigurationError, match="ttl must be"):
        seconds(10**400, "ttl")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (0.1, 100_000), (1e-9, 1), (1.0000004, 1_000_000), (86_400.0, 86_400_000_000)],
)
def test_a_store_counts_whole_microseconds_and_at_least_one(value, expected):
    assert microseconds(value) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (1, 1),
        (4096, 4096),
        ("100B", 100),
        ("2KiB", 2048),
        ("1MiB", 1_048_576),
        ("2KB", 2000),
        (" 3 MB ", 3_000_000),
    ],
)
def test_a_size_is_read_as_it_is_written(written, expected):
    assert size(written, "max_result") == expected


@pytest.mark.parametrize(
    "written", [0, -1, True, False, 1.5, "0B", "1", "1 GiB", "MiB", "-1KB", "", None, [1]]
)
def test_anything_else_is_told_how_a_size_is_written(written):
    with pytest.raises(ConfigurationError) as caught:
        size(written, "max_result")
    assert str(caught.value) == (
        f'max_result must be a number of bytes above zero or a size such as "1MiB", not {written!r}'
    )
