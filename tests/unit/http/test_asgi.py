"""What an application may write into its messages."""

import pytest

from oncekey.http.asgi import _lowered as lowered

PLAIN = [(b"content-type", b"text/plain"), (b"vary", b"accept")]


@pytest.mark.parametrize(
    "headers",
    [
        PLAIN,
        iter(PLAIN),
        [(b"Content-Type", b"text/plain"), (b"VARY", b"accept")],
        [(bytearray(b"content-type"), b"text/plain"), (b"vary", memoryview(b"accept"))],
        [[b"content-type", b"text/plain"], [b"x-Other", b"1"]],
    ],
    ids=["plain", "iterator", "capitals", "other bytes", "lists"],
)
def test_names_come_in_lower_case_and_all_of_it_in_bytes(headers):
    seen = lowered(headers)
    assert [tuple(pair) for pair in seen] in (PLAIN, [PLAIN[0], (b"x-other", b"1")])
    assert {type(one) for pair in seen for one in pair} == {bytes}


def test_it_is_a_copy():
    """The application may change its own while the response is held back."""
    headers = list(PLAIN)
    seen = lowered(headers)
    headers.clear()
    assert seen == PLAIN
