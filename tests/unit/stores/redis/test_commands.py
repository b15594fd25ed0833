"""What the Redis store decides without a server: names, versions and errors."""

import pytest
import redis.exceptions as told
from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from oncekey import stores
from oncekey.core.requests import Claim
from oncekey.errors import ConfigurationError, StoreError, UnreadableError
from oncekey.stores.redis import commands as codec
from oncekey.stores.redis.commands import HEAD, STATUS_AT, scripts_for
from oncekey.stores.redis.connection import pack, pack_script
from oncekey.stores.redis.errors import explain
from tests.servers.redis_stored import as_stored

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@given(scope=st.none() | PRINTABLE, key=PRINTABLE, prefix=PRINTABLE)
def test_a_name_leads_back_to_scope_and_key(scope, key, prefix):
    name = codec.name_of(prefix.encode(), scope, key)
    assert codec.place_of(prefix.encode(), name) == (scope or "", key)


@pytest.mark.parametrize("name", [b"p:\xff", b"p:", b"p:/k", b"p:s/", b"p:a/b/c", b"p:%41", b"p:%"])
def test_a_name_of_somebody_else_leads_nowhere(name):
    assert codec.place_of(b"p:", name) is None


# Records


def with_bytes(place, data):
    return lambda stored: stored[:place] + data + stored[place + len(data) :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: stored[:30],
        lambda stored: stored[:-1],
        with_bytes(0, b"nose"),
        with_bytes(STATUS_AT, b"\xff"),
        *(with_bytes(HEAD.size + place, b"\xff") for place in range(4)),  # of four texts
    ],
)
def test_bytes_that_are_no_record_are_unreadable(damage, recorded):
    fields = {"nonce": "n", "fingerprint": "f", "label": "l", "reference": "r"}
    stored = as_stored(recorded(**fields))
    assert codec.found("billing", "charge:42", stored) == recorded(**fields)
    with pytest.raises(UnreadableError, match="or was damaged"):
        codec.found("billing", "charge:42", damage(stored))


# Versions


@pytest.mark.parametrize("version", ["5.0.14", "6.0.9", "2.8"])
def test_an_old_server_is_refused(version):
    with pytest.raises(ConfigurationError, match=r"needs Redis 6\.2 or newer"):
        scripts_for({"redis_version": version})


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({"redis_version": "6.2.0"}, False),
        ({"redis_version": "7.0.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, True),
        ({"redis_version": "10.0"}, True),
        ({"127.0.0.1:7000": {"redis_version": "7.4.1"}}, True),
        ({}, False),
    ],
)
def test_flags_are_for_servers_that_know_them(facts, flags):
    scripts = scripts_for(facts)
    flagged = {
        verb for verb, one in scripts.items() if one.text.startswith("#!lua flags=allow-oom\n")
    }
    assert flagged == ({"settle", "renew", "release"} if flags else set())


# Errors


def explained(error, *, sent_once=True):
    return explain(error, "host:1", sent_once=sent_once)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (told.ReadOnlyError("You can't write against a read only replica."), "read-only replica"),
        (told.OutOfMemoryError("command not allowed"), "is full"),
        (told.ResponseError("Error running script: -OOM command not allowed"), "is full"),
        (told.BusyLoadingError("Redis is loading the dataset in memory"), "still loading"),
        (told.ResponseError("BUSY Redis is busy running a script."), "SCRIPT KILL"),
        (told.MasterDownError("Link with MASTER is down"), "lost its primary"),
        (told.ClusterDownError("The cluster is down"), "CLUSTER INFO"),
        (told.MovedError("1 127.0.0.1:7001"), "RedisCluster"),
        (told.AskError("1 127.0.0.1:7001"), "RedisCluster"),
        (told.TryAgainError("Multiple keys request"), "ask again"),
        (told.ClusterCrossSlotError("Keys in request"), "elsewhere"),
        (told.ResponseError("NOREPLICAS Not enough good replicas to write."), "replicas"),
        (told.ResponseError("MISCONF Redis is configured to save"), "disk"),
        (told.NoScriptError("No matching script."), "script"),
        (told.MaxConnectionsError("Too many connections"), "max_connections"),
    ],
)
def test_a_refusal_did_not_happen(error, words):
    refusal = explained(error)
    assert isinstance(refusal, StoreError)
    assert (refusal.happened, refusal.unreachable) == (False, False)
    assert words in str(refusal)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (told.AuthenticationError("Authentication required."), "wants a password"),
        (told.ResponseError("NOAUTH Authentication required."), "wants a password"),
        (told.AuthenticationError("invalid username-password pair"), "refused the user name"),
        (told.AuthenticationWrongNumberOfArgsError("wrong number"), "refused the user name"),
        (told.NoPermissionError("this user has no permissions"), "grant @scripting"),
    ],
)
def test_a_wrong_setting_is_named(error, words):
    wrong = explained(error)
    assert isinstance(wrong, ConfigurationError)
    assert words in str(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "Error 111 connecting to host:1.",
        "Timeout connecting to server",
        "No master found for 'shop'",  # the words of Sentinel
    ],
)
def test_without_a_connection_nothing_was_sent(text):
    for kind in (told.ConnectionError, told.TimeoutError):
        error = explained(kind(text))
        assert (error.happened, error.unreachable) == (False, True)
        assert explained(kind(text), sent_once=False).happened is None


def test_what_was_sent_and_not_answered_is_unknown():
    lost = explained(told.ConnectionError("Connection closed by server."))
    assert (lost.happened, lost.unreachable) == (None, False)
    late = explained(told.TimeoutError("Timeout reading from host:1"))
    assert (late.happened, late.unreachable) == (None, True)
    assert explained(told.ResponseError("ERR of a new kind")).happened is None


# The extra


@pytest.mark.parametrize("url", ["redis://h:1/0", "rediss://h:1/0", "unix:///tmp/redis.sock"])
def test_opening_a_url_connects_to_nothing(url):
    store = stores.open_store(url)
    assert isinstance(store, stores.RedisStore)
    assert isinstance(store.as_async(), stores.AsyncRedisStore)
    assert isinstance(stores.AsyncRedisStore.from_url(url), stores.AsyncStore)


@pytest.mark.parametrize("large", [{"label": "x" * 65_536}, {"reference": "ü" * 40_000}])
def test_a_claim_that_fits_into_no_record_is_refused_in_a_sentence(large):
    ask = Claim(None, "k", nonce="n", fingerprint=None, lease=1, ttl=1, **large)
    with pytest.raises(ConfigurationError, match="at most 65,535 bytes each"):
        codec.claim(ask)


SHA = b"a" * 40


@pytest.mark.parametrize(
    "words",
    [
        ("EVALSHA", SHA, 2, b"one", b"other"),
        ("EVALSHA", SHA.decode(), 1, b"name", 7),
        ("EVAL", "return 1", 1, b"name", b"ask"),
        ("SET", b"name", 1, b"NX", b"GET"),
        ("SET", b"name", 1, b"PX", b"5", b"NX"),
        ("GET", b"name"),
    ],
)
def test_a_command_is_written_as_hiredis_writes_it(words):
    assert pack(words) == pack_command(words)


@pytest.mark.parametrize(
    "arguments", [(), (b"ask",), (b"ask", b"\r\n\x00"), (b"ask", b"result", b"error")]
)
def test_the_call_of_a_script_is_written_as_hiredis_writes_it(arguments):
    words = ("EVALSHA", SHA, "1", b"name", *arguments)
    assert pack_script(SHA, b"name", arguments) == pack_command(words)
