"""No part of a password is in a message, however it is written into a URL."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey import OncekeyError
from oncekey.cli.watch import Screen
from oncekey.stores import open_store
from oncekey.stores.url import has_secrets, safe_url

PIECES = ("XQZ1", "wvk2", "7391", "JHJ")
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


def said(url):
    """All that is said about the URL: by the store, by its errors, and by a screen."""
    texts = [safe_url(url), Screen(url, "2s", redact=False)._where]
    try:
        store = open_store(url)
    except OncekeyError as error:
        texts.append("".join(traceback.format_exception(error)).rpartition("raise ")[2])
        texts += [str(error), str(error.__cause__ or "")]
    else:
        target = getattr(store, "target", getattr(store, "clients", None))
        texts.append(getattr(target, "where", ""))
    return texts


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


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("redis://ann:pw@db:6379/0", "redis://db:6379/0"),
        ("redis://db/0?password=pw", "redis://db/0"),
        ("redis://:p%40w@[::1]:6379", "redis://[::1]:6379"),
        ("postgresql://ann:pw@one:1,two:2/shop", "postgresql://one:1,two:2/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("redis://:pa/ss@db", "redis://..."),
        ("redis://:pa#ss@db", "redis://..."),
        ("redis://:12?34@db", "redis://..."),
        ("ann:pw@db", "..."),
    ],
)
def test_what_is_printed(url, safe):
    assert safe_url(url) == safe
    assert has_secrets(url) == (url != safe)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:XQZ1/wvk2@db.example:6379/0",
        "redis://:7391#wvk2@db.example/0",
        "redis://:@XQZ1?@db.example/0",
        "redis://db.example/0?password=&XQZ1=1",
        "redis://[:XQZ1@x",
        "redis://:[XQZ1]@x",
        "postgresql://ann:7391/wvk2@db.example/shop",
        "postgresql://ann:@XQZ1@db.example/shop",
        "sqlite://ann:XQZ1@x",
        "memory://ann:XQZ1@x",
        "//:XQZ1@x",
    ],
)
def test_these_were_said_once(url):
    for text in said(url):
        assert not [piece for piece in PIECES if piece in text], text
