"""When a request is sent again and how long the client waits, with a chance and clocks of ours."""

import dataclasses
import math

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.http.client import Tries, passing, rules, told_to_wait, whole

REQUEST = httpx.Request("POST", "http://shop", content=b"x")
MAYBE = httpx.ConnectError("refused")


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, chance: float = 1.0, **settings) -> Tries:
    fixed = dataclasses.replace(rules(**settings), random=lambda: chance, clock=clock)
    return Tries(fixed)


def response(status: int, **headers: str) -> httpx.Response:
    return httpx.Response(
        status, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


# How long


def test_the_bound_of_the_wait_doubles_until_it_is_the_longest(clock):
    tries = made(clock, tries=8)
    waits = []
    for _ in range(7):
        tries.next(REQUEST)
        waits.append(tries.wait_after(MAYBE))
    assert waits == [0.5, 1, 2, 4, 8, 8, 8]


@given(chance=st.floats(0, 1, exclude_max=True), number=st.integers(1, 5))
def test_any_wait_up_to_the_bound_may_come(chance, number):
    tries = made(Clock(), chance)
    for _ in range(number):
        tries.next(REQUEST)
    assert tries.wait_after(MAYBE) == min(0.5 * 2 ** (number - 1), 8) * chance


def test_a_great_many_tries_do_not_overflow(clock):
    tries = made(clock, tries=5000)
    for _ in range(4000):
        tries.next(REQUEST)
    assert tries.wait_after(MAYBE) == 8


def test_the_last_try_is_followed_by_none(clock):
    tries = made(clock, tries=2)
    tries.next(REQUEST)
    assert tries.wait_after(MAYBE) is not None
    tries.next(REQUEST)
    assert tries.wait_after(MAYBE) is None


@pytest.mark.parametrize("value", ["3", "3.0", " 3 "])
def test_what_the_server_says_is_the_least(clock, value):
    tries = made(clock, chance=0.0)
    tries.next(REQUEST)
    assert tries.wait_after(response(503, retry_after=value)) == 3
    patient = made(clock, first_wait=8)
    patient.next(REQUEST)
    assert patient.wait_after(response(503, retry_after=value)) == 8


def test_a_wait_that_would_reach_the_deadline_is_not_begun(clock):
    tries = made(clock, deadline=10)
    tries.next(REQUEST)
    assert tries.wait_after(response(503, retry_after="10")) is None
    assert tries.wait_after(response(503, retry_after="9.9")) == 9.9
    clock.at += 9.6
    assert tries.wait_after(MAYBE) is None


# Retry-After


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "0"}, 0),
        ({"retry-after": "120"}, 120),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 37),  # by the clock here
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 -0000"}, 37),
        ({"retry-after": "Sun, 06 Nov 1994 08:48:37 GMT"}, 0),  # over already
        (  # by the clock of the server, which is a year late
            {
                "retry-after": "Sat, 06 Nov 1993 08:49:37 GMT",
                "date": "Sat, 06 Nov 1993 08:49:27 GMT",
            },
            10,
        ),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1, 2"}, None),
        ({"retry-after": "Sun, 99 Nov 1994 08:49:37 GMT"}, None),
    ],
)
def test_a_number_of_seconds_or_a_date(headers, wait):
    assert told_to_wait(httpx.Headers(headers), today=784111740.0) == wait


PIECES = [
    "Sun,",
    "06",
    "99",
    "Nov",
    "1994",
    "0",
    "99999",
    "08:49:37",
    "25:61",
    "GMT",
    "-9999",
    "+x",
]
DATES = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda some: " ".join(some).encode())


@given(value=st.binary() | DATES, date=st.binary() | DATES)
def test_no_header_breaks_the_client(value, date):
    headers = httpx.Headers([(b"retry-after", value), (b"date", date)])
    wait = told_to_wait(headers, today=0.0)
    assert wait is None or (wait >= 0 and math.isfinite(wait))


# Whether


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (httpx.ConnectError("x"), True),
        (httpx.ReadError("x"), True),
        (httpx.WriteError("x"), True),
        (httpx.CloseError("x"), True),
        (httpx.ConnectTimeout("x"), True),
        (httpx.ReadTimeout("x"), True),
        (httpx.WriteTimeout("x"), True),
        (httpx.PoolTimeout("x"), True),
        (httpx.RemoteProtocolError("x"), True),
        (httpx.LocalProtocolError("x"), False),
        (httpx.UnsupportedProtocol("x"), False),
        (httpx.ProxyError("x"), False),
    ],
)
def test_errors_that_pass_are_told_from_errors_that_stay(error, again):
    assert passing(error) is again


def test_only_these_statuses_ask_for_patience():
    found = {status for status in range(100, 600) if passing(response(status))}
    assert found == {425, 429, 502, 503, 504}


@pytest.mark.parametrize("status", [409, 400, 500, 503])
def test_the_servers_word_on_retries_counts_more_than_the_status(status):
    assert passing(response(status, stripe_should_retry="true"))
    assert not passing(response(status, stripe_should_retry="false", retry_after="1"))


@pytest.mark.parametrize(
    ("kind", "headers", "again"),
    [
        ("urn:oncekey:in-progress", {}, True),
        ("urn:oncekey:in-progress", {"retry-after": "1"}, True),
        ("urn:oncekey:key-reused", {"retry-after": "1"}, False),
        ("urn:oncekey:outcome-unknown", {"retry-after": "1"}, False),
        ("urn:oncekey:response-not-replayable", {}, False),
        ("https://shop.example/keys#in-progress", {}, True),
        ("https://shop.example/keys/in-progress", {"retry-after": "1"}, True),
        ("https://shop.example/?problem=in-progress", {}, True),
        ("https://shop.example/keys#key-reused", {"retry-after": "1"}, False),
        ("https://shop.example/keys/outcome-unknown", {"retry-after": "1"}, False),
        ("https://shop.example/keys#sold-out", {}, False),
        ("about:blank", {}, False),
        ("about:blank", {"retry-after": "1"}, True),
        ("about:blank", {"retry-after": "never"}, False),
    ],
)
def test_a_conflict_is_asked_again_only_if_it_says_not_yet(kind, headers, again):
    problem = {"content-type": "application/problem+json; charset=utf-8", **headers}
    body = b'{"status": 409, "type": "%s"}' % kind.encode()
    assert passing(whole(httpx.Response(409, headers=problem), body)) is again


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"type": 7}', b"\xff", b'{"a":' * 100_000, b'"urn:oncekey:in-progress"'],
)
def test_a_problem_that_cannot_be_read_is_none(body):
    problem = {"content-type": "application/problem+json"}
    assert not passing(whole(httpx.Response(409, headers=problem), body))
    broken = {**problem, "content-encoding": "gzip"}
    assert not passing(whole(httpx.Response(409, headers=broken), b"not gzip"))


def test_the_type_counts_only_in_a_problem_that_is_there():
    body = b'{"type": "urn:oncekey:in-progress"}'
    assert not passing(whole(httpx.Response(409), body))
    problem = {"content-type": "application/problem+json"}
    assert not passing(httpx.Response(409, headers=problem, stream=httpx.SyncByteStream()))


# The request of each try


def test_no_time_out_reaches_past_the_deadline(clock):
    tries = made(clock, deadline=10)
    clock.at += 4
    given = {"connect": 1.0, "read": None, "write": 100.0}
    request = httpx.Request("POST", "http://shop", extensions={"timeout": given, "trace": print})
    sent = tries.next(request)
    assert sent.extensions["timeout"] == {"connect": 1.0, "read": 6.0, "write": 6.0, "pool": 6.0}
    assert sent.extensions["trace"] is print
    assert request.extensions["timeout"] is given
    clock.at += 100
    assert all(one > 0 for one in tries.next(request).extensions["timeout"].values())


def test_a_try_sends_the_request_as_it_is(clock):
    sent = made(clock).next(REQUEST)
    assert (sent.method, sent.url, sent.headers) == (REQUEST.method, REQUEST.url, REQUEST.headers)
    assert sent.read() == b"x"


@pytest.mark.parametrize(
    ("length", "fits"),
    [("0", True), ("10", True), ("11", False), ("", False), ("-1", False), ("9" * 5000, False)],
)
def test_a_body_is_held_if_its_length_is_known_and_small(length, fits):
    message = httpx.Response(200, headers={"content-length": length})
    assert rules(buffer=10).fits(message) is fits
    assert not rules().fits(httpx.Response(200))
