"""No part of a password is in a message, however it is written into a URL."""

from hypothesis import given
from hypothesis import strategies as st

from oncekey.stores.url import safe_url
from tests.unit.stores.said_urls import PIECES, said

SPECIAL = "/@#?:[]%&=;, +\\'\"{}"


@st.composite
def passwords(draw):
    count = draw(st.integers(1, 4))
    between = st.text(SPECIAL, max_size=3)
    return draw(between) + "".join(piece + draw(between) for piece in PIECES[:count])


SHAPES = (
    "redis://:{}@db.example:6379/0",
    "redis://ann:{}@db.example",
    "rediss://{}@db.example/0",
    "redis://db.example/0?password={}",
    "redis://db.example/0?bogus={}",
    "unix:///run/redis.sock?password={}",
    "unix://ann:{}@/run/redis.sock",
    "postgresql://ann:{}@db.example:5432/shop",
    "postgresql://db.example/shop?user=ann&password={}",
    "postgres://{}@db.example/shop",
    "sqlite://ann:{}@file.db",
    "sqlite:///file.db?{}=1",
    "memory://:{}@here",
    "mysql://ann:{}@db.example/shop",
    "://{}@x",
    "{}@x",
)


@given(shape=st.sampled_from(SHAPES), password=passwords())
def test_no_part_of_a_password_is_said(shape, password):
    url = shape.format(password)
    if shape in ("sqlite:///file.db?{}=1", "redis://db.example/0?bogus={}"):
        return  # the name of an option that is unknown is said, which is no password
    for text in said(url):
        assert not [piece for piece in PIECES if piece in text], text


@given(url=st.text(SPECIAL + "abc019.-:/", max_size=40))
def test_anything_may_be_printed_safely(url):
    assert isinstance(safe_url(url), str)
    if "@" in safe_url(url):
        assert "@" not in url
