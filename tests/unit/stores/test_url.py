"""What of a URL is printed, and which URLs are refused because they mean two things."""

import pytest

from oncekey import ConfigurationError
from oncekey.stores import open_store
from oncekey.stores.url import has_secrets, safe_url
from tests.unit.stores.said_urls import PIECES, said


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


@pytest.mark.parametrize("mode", ["9", "0400x", "0044", "07777"])
def test_a_mode_is_octal_and_lets_the_owner_in(mode):
    with pytest.raises(ConfigurationError, match="mode"):
        open_store(f"sqlite:///x.db?mode={mode}")


def test_a_mode_is_taken(tmp_path):
    store = open_store(f"sqlite:///{tmp_path / 'x.db'}?mode=0640")
    store.get(None, "k")
    assert store.path.stat().st_mode & 0o777 == 0o640
    store.close()
