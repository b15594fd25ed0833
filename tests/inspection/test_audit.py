"""What is done by hand is kept by every store, whether by blocking code or by coroutines."""

import pytest

from oncekey import Once
from oncekey.core.requests import Forget, Verdict
from oncekey.inspection.listing import audit_of, read_audit
from oncekey.observe import Event
from tests.patience import until


def held(once, key):
    with pytest.raises(TimeoutError), once.options(on_crash="hold").attempt(key):
        raise TimeoutError


def kept(store):
    return [
        (entry.action, entry.key, entry.by, entry.reason, entry.count)
        for entry in read_audit(store, 10) or ()
    ]


def test_who_and_why_are_kept(store):
    told: list[Event] = []
    once = Once(store, observers=[told.append], cache=False)
    for key in ("a", "b", "c"):
        held(once, key)
    if type(store).__name__ == "Unknown":
        assert once.resolve("a", result=1, by="ann")
        assert read_audit(store, 10) is None
        (entry,) = audit_of(store, once.get("a"))  # the record says it, also without a trail
        assert (entry.by, entry.became) == ("ann", "completed")
        return
    assert once.resolve("a", result=1, by="ann", reason="it was paid")
    assert once.resolve("b", retry=True, by="ann")
    assert not once.resolve("b", retry=True, by="ann")
    assert once.forget("c", force=True, reason="a test")
    ask = Forget(None, "c", token=1, force=True, audit=b"{}")
    assert store.forget(ask) is Verdict.DONE  # it is gone already: nothing is written down
    once.run("quiet", lambda: 1)
    once.forget("quiet")
    assert kept(store) == [
        ("forget", "c", "", "a test", 1),
        ("retry", "b", "ann", "", 1),
        ("resolve", "a", "ann", "it was paid", 1),
    ]
    (entry,) = audit_of(store, once.get("a"))
    assert (entry.was, entry.became) == ("held", "completed")
    deed = once.get("a").resolved
    assert (deed.by, deed.reason, deed.at) == ("ann", "it was paid", once.get("a").finished)
    assert once.get("quiet") is None
    once.run("quiet", lambda: 1)
    assert once.get("quiet").resolved is None
    by_hand = [(one.name, one.detail) for one in told if one.name in ("resolved", "forgotten")]
    assert by_hand == [
        ("resolved", "it has ended, by ann: it was paid"),
        ("resolved", "it may run again, by ann"),
        ("forgotten", "it was removed, by somebody: a test"),
    ]


async def test_coroutines_keep_the_same(store):
    once = Once(store, observers=(), cache=False)
    for key in ("a", "b"):
        held(once, key)
    native = once.core.store_async
    assert await once.resolve_async("a", retry=True, by="ann", reason="no")
    assert not await once.resolve_async("a", retry=True, by="ann")
    assert await once.forget_async("b", force=True, by="bob")
    record = await once.get_async("a")
    if type(store).__name__ == "Unknown":
        assert native.audit is native.audited is native.restore is None
        return
    await native.audit(b'{"action":"purge","by":"ann","count":3}')
    assert kept(store) == [
        ("purge", "", "ann", "", 3),
        ("forget", "b", "bob", "", 1),
        ("retry", "a", "ann", "no", 1),
    ]
    assert len(await native.audited(2)) == 2
    assert await native.restore(record) is False
    await once.forget_async("a")
    assert await native.restore(record) is True
    assert await once.get_async("a") == record


async def test_a_purge_by_hand_is_kept(store):
    once = Once(store, observers=(), cache=False)
    removes = []
    for purge in (once.purge, once.purge_async):
        once.options(ttl="1ms").run("short", lambda: 1)
        until(lambda: once.get("short") is None)
        done = purge(by="ann", reason="space")
        removes.append(await done if purge == once.purge_async else done)
    if any(removes) and read_audit(store, 1) is not None:
        assert kept(store) == [("purge", "", "ann", "space", 1)] * 2
