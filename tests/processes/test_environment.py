"""A process that is told by its environment alone where the records are."""

import pytest

DAY = 24 * 3600


@pytest.mark.row("W5")
def test_redis_url_names_the_store_and_redis_shows_the_record(empty_redis, spawn, monkeypatch):
    monkeypatch.setenv("REDIS_URL", empty_redis.url)
    assert spawn("environment").output() == "done"
    with empty_redis.client() as client:
        shown = {key for key in client.scan_iter() if b"/" not in key}  # counts for charts have one
        assert shown == {b"idempotency:order-1"}
        assert 0 < client.ttl("idempotency:order-1") <= DAY


@pytest.mark.row("W5")
def test_the_lifetime_is_set_by_the_environment_too(empty_redis, spawn, monkeypatch):
    monkeypatch.setenv("REDIS_URL", empty_redis.url)
    monkeypatch.setenv("ONCEKEY_TTL", "7d")
    monkeypatch.setenv("ONCEKEY_PREFIX", "shop:")
    assert spawn("environment").output() == "done"
    with empty_redis.client() as client:
        assert DAY < client.ttl("shop:order-1") <= 7 * DAY
