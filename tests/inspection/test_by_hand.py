"""What is changed by hand is written down: who, when and why, in every store and both colours."""

import pytest

from oncekey import ConfigurationError, Once, OutcomeUnknownError
from oncekey.core.audit import decode_entry
from oncekey.stores.redis.browse import correct_held
from tests.patience import until_async

BY = {"by": "ann", "reason": "the bank says so"}


@pytest.fixture(params=["blocking", "async"])
async def act(request, store):
    """Return a function that calls a method of a `Once` on the store, in this colour."""
    heard = []
    once = Once(store, observers=[heard.append], cache=False)
    is_async = request.param == "async"

    async def call(name, *args, **options):
        found = getattr(once, f"{name}_async" if is_async else name)(*args, **options)
        return await found if is_async else found

    call.once, call.heard = once, heard
    yield call
    await once.aclose()


def held(once, key):
    """A record whose outcome nobody knows."""

    def fails():
        raise ConnectionResetError

    holding = once.options(on_crash="hold")
    with pytest.raises(ConnectionResetError):
        holding.run(key, fails)
    with pytest.raises(OutcomeUnknownError):
        holding.run(key, fails)


def written(store):
    """What the audit trail has, the oldest first, or None if the store keeps none."""
    audited = getattr(store, "audited", None)
    if audited is None:
        return None
    found = [decode_entry(at, entry) for at, entry in reversed(audited(10))]
    assert all(entry.at for entry in found)
    return [(entry.action, entry.by, entry.key, entry.count, entry.became) for entry in found]


async def test_who_resolves_or_forgets_by_hand_is_written_down(act, store):
    once = act.once
    for key in ("a", "b"):
        held(once, key)
    once.run("c", lambda: 1)
    assert await act("resolve", "a", result=1, **BY)
    assert await act("resolve", "b", retry=True, **BY)
    assert not await act("resolve", "c", result=1, **BY)
    assert await act("forget", "c", **BY)
    assert not await act("forget", "c", **BY)
    assert await act("forget", "b")  # nobody said who, and nothing is written down
    trail = [
        ("resolve", "ann", "a", 1, "completed"),
        ("retry", "ann", "b", 1, "released"),
        ("forget", "ann", "c", 1, ""),
    ]
    assert written(store) in (None, trail)
    told = [event.detail for event in act.heard if "ann" in event.detail]
    assert len(told) == 3
    assert all("the bank says so" in detail for detail in told)


@pytest.mark.parametrize("store", ["unknown"], indirect=True)
async def test_whoever_decides_too_late_changes_nothing(act, store, monkeypatch):
    held(act.once, "a")
    known = store.get(None, "a")
    assert await act("resolve", "a", result=1)
    monkeypatch.setattr(store, "get", lambda *_: known)  # read just before it was resolved
    assert not await act("resolve", "a", result=2)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres", "unknown"], indirect=True)
async def test_who_purges_by_hand_is_written_down(act, store):
    """Redis removes by itself what has expired."""
    act.once.options(ttl="1ms").run("short", lambda: 1)
    gone = []

    async def purged():
        gone.append(await act("purge", **BY))
        return not list(act.once.scan()) and sum(gone)

    await until_async(purged)
    assert written(store) in (None, [("purge", "ann", "", sum(gone), "")])


@pytest.mark.parametrize("said", [{"by": 7}, {"reason": None}])
def test_who_and_why_are_texts(said):
    [name] = said
    with pytest.raises(ConfigurationError, match=f"{name} must be a text"):
        Once("memory://").forget("k", **said)


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_set_of_held_records_that_is_wrong_is_corrected(store):
    once = Once(store, cache=False)
    for key in ("a", "b"):
        held(once, key)
    client = store.clients.client()
    name = store.held_set()
    [first, second] = client.zrange(name, 0, -1)
    client.zrem(name, first)
    client.delete(second)
    assert correct_held(store) == 2
    assert correct_held(store) == 0
    assert client.zrange(name, 0, -1) == [first]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///records.db?mode=rw", "mode is octal"),
        ("postgresql://ann:p@ss@w/ord@localhost/shop", "percent-encode"),
    ],
)
def test_a_url_that_can_be_read_in_two_ways_is_refused(url, words):
    with pytest.raises(ConfigurationError, match=words):
        Once(url).get("k")
