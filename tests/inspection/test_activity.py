"""Counts of calls over time, by label and scope, and where a store is: on every kind of store."""

import subprocess
import sys
from contextlib import closing

import pytest

from oncekey import Once, StoreError
from oncekey.inspection.listing import break_down, read_activity, where
from oncekey.stores import AsyncRedisStore, MemoryStore, RedisStore
from oncekey.stores.activity import RINGS

NOWHERE = "redis://127.0.0.1:1/3"


def sums(found):
    return {ring.width: [slot.counts for slot in found.series(ring)][-2:] for ring in RINGS}


async def test_what_any_process_has_added_is_read(store):
    if type(store).__name__ == "Unknown":
        assert read_activity(store) is None
        return
    store.add_activity((1, 2, 3, 4), 0)
    beside = store.as_async()
    await beside.add_activity((1, 0, 0, 0), 0)
    found = read_activity(store)
    assert {slot.counts for slot in found.slots} <= {(2, 2, 3, 4), (1, 2, 3, 4), (1, 0, 0, 0)}
    assert sum(slot.counts[0] for slot in found.slots) == 2 * len(RINGS)
    assert (await beside.activity()).slots == found.slots
    assert sums(found)[RINGS[2].width][-1] in ((2, 2, 3, 4), (1, 0, 0, 0))
    await beside.aclose()


SHORT = {
    "exit": "once = Once({url!r}); once.run('a', lambda: 1)",
    "close": "once = Once({url!r}); once.run('a', lambda: 1); once.close(); os._exit(0)",
    "aclose": """
async def main():
    once = Once({url!r})
    await once.run_async('a', answer)
    await once.aclose()
async def answer():
    return 1
asyncio.run(main())
os._exit(0)
""",
}


@pytest.mark.parametrize("end", SHORT)
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_a_process_that_ends_within_ten_seconds_is_in_the_charts(kind, end, request, tmp_path):
    servers = {"redis": "empty_redis", "postgres": "empty_postgres_url"}
    server = request.getfixturevalue(servers[kind]) if kind in servers else None
    url = (
        f"sqlite:///{tmp_path / 'records.db'}" if server is None else getattr(server, "url", server)
    )
    code = f"import asyncio, os\nfrom oncekey import Once\n{SHORT[end].format(url=url)}"
    subprocess.run([sys.executable, "-c", code], check=True)
    with closing(Once(url, observers=()).store) as store:
        assert [one.counts for one in read_activity(store).slots] == [(1, 0, 0, 0)] * len(RINGS)


def test_a_file_that_was_removed_is_not_made_again_for_the_charts(tmp_path):
    path = tmp_path / "records.db"
    run = SHORT["exit"].format(url=f"sqlite:///{path}")
    code = f"import glob, os\nfrom oncekey import Once\n{run}; once.store.close()"
    remove = f"[os.unlink(one) for one in glob.glob('{path}*')]"
    subprocess.run([sys.executable, "-c", f"{code}\n{remove}"], check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_goes_back_does_not_empty_a_slot():
    now = [RINGS[0].span * 100]
    store = MemoryStore(clock=lambda: now[0])
    store.add_activity((5, 0, 0, 0), 0)
    now[0] -= RINGS[0].span
    store.add_activity((1, 0, 0, 0), 0)
    now[0] += RINGS[0].span
    minutes = [slot.counts for slot in store.activity().slots if slot.width == RINGS[0].width]
    assert minutes == [(5, 0, 0, 0)]


async def test_a_store_that_is_away_says_so():
    store = RedisStore.from_url(NOWHERE)
    with pytest.raises(StoreError):
        store.add_activity((1, 0, 0, 0), 0)
    with pytest.raises(StoreError):
        store.activity()
    store.close()
    beside = AsyncRedisStore.from_url(NOWHERE)
    with pytest.raises(StoreError):
        await beside.add_activity((1, 0, 0, 0), 0)
    with pytest.raises(StoreError):
        await beside.activity()
    await beside.aclose()


def test_the_place_of_a_store_is_told_without_secrets(store, request):
    kind = type(store).__name__
    said = where(store)
    if kind == "SQLiteStore":
        assert said == str(store.file)
    elif kind == "RedisStore":
        assert said == f"127.0.0.1:{request.getfixturevalue('empty_redis').port}/0"
    elif kind == "PostgresStore":
        assert request.getfixturevalue("empty_postgres_url").endswith(said.rpartition("/")[2])
        assert "@" not in said
    else:
        assert said == ("in this process" if kind == "MemoryStore" else "")


def test_records_are_counted_by_label_and_scope(store):
    once = Once(store, observers=(), cache=False)
    for number in range(5):
        once.options(scope=f"s{number % 2}", label="charge").run(f"k:{number}", lambda: 1)
    once.options(label="other").run("bare", lambda: 1)
    found = break_down(store, most=1000, seconds=60)
    assert (found.read, found.whole) == (6, True)
    assert [(one.name, one.total) for one in found.labels] == [("charge", 5), ("other", 1)]
    assert [(one.name, one.total) for one in found.scopes] == [("s0", 3), ("s1", 2), (None, 1)]
    assert found.labels[0].by_status == {"completed": 5}
    part = break_down(store, most=2, seconds=60)
    if type(store).__name__ != "RedisStore":  # a step of SCAN may bring all
        assert (part.read, part.whole) == (2, False)
    assert part.read <= 6
