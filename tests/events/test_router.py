"""The router, on a real server: state forward only, and no entry is lost or handled twice."""

import threading

import pytest
from redis.exceptions import NoScriptError

from oncekey import ConfigurationError, StoreError
from oncekey.events import Bus, Memory, Router, Stages, redis_commands, shard_of
from oncekey.events import router as router_shard
from oncekey.events.router import ShardRouter
from tests.patience import PATIENCE, until

JOB = "job-1"
TAG = f"{{scan:{shard_of(JOB, 4)}}}"
STREAM = f"{TAG}:events"
JOB_KEY = f"{TAG}:job:{JOB}"
MANY = Stages({"work": (0, 9999)})


@pytest.fixture
def bus(empty_redis):
    with Bus(empty_redis.url, domain="scan", stages=MANY) as bus:
        yield bus


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def open_router(empty_redis):
    opened = []

    def start(**options):
        opened.append(Router(empty_redis.url, domain="scan", **options))
        return opened[-1]

    yield start
    for router in opened:
        router.close()


def publish(bus, *numbers):
    for number in numbers:
        bus.publish(JOB, "work", number, seq=number)


def end_state(client):
    """As if the time of the state were over."""
    seq, offset, _ = client.hget(JOB_KEY, "top").split()
    client.hset(JOB_KEY, "top", b"%b %b 0" % (seq, offset))


def pending(client):
    return client.xpending(STREAM, "router")["pending"]


def test_what_was_routed_counts_when_the_server_learned_the_script_on_the_way(
    bus, open_router, client, monkeypatch
):
    """Another router teaches the server in the middle of the pipeline of this one."""
    piped, first = router_shard._piped, []

    def half_known(given, commands):
        if first:
            return piped(given, commands)
        first.append(len(commands))
        given.script_load(redis_commands.script("route").text)
        return [NoScriptError("no matching script"), *piped(given, commands[1:])]

    monkeypatch.setattr(router_shard, "_piped", half_known)
    shard = shard_of(JOB, 4)
    jobs = [job for job in map(str, range(99)) if shard_of(job, 4) == shard][:4]
    for job in jobs:
        bus.publish(job, "work", 1, seq=1)
    assert open_router().step() == 4
    assert first == [4]
    assert pending(client) == 0


@pytest.mark.row("E3")
def test_the_state_goes_forward_only(bus, open_router):
    router = open_router()
    seen = []
    for seq in (5, 3, 8, 1):
        publish(bus, seq)
        assert router.step() == 1
        seen.append(bus.state(JOB).seq)
    assert seen == [5, 5, 8, 8]
    assert router.step() == 0


@pytest.mark.row("E3")
def test_old_entries_that_come_again_do_not_move_the_state_back(bus, client, open_router):
    publish(bus, 1, 2, 3)
    open_router().step()
    client.xgroup_destroy(STREAM, "router")  # and made again, from the oldest entry on
    publish(bus, 9)
    open_router().step()
    assert bus.state(JOB).seq == 9
    end_state(client)
    client.xgroup_destroy(STREAM, "router")
    open_router().step()
    assert bus.state(JOB) is None


def test_entries_of_an_epoch_that_is_over_do_not_touch_the_state(bus, client, open_router):
    publish(bus, 9)
    client.delete(f"{TAG}:job:{JOB}", f"{TAG}:log:{JOB}")
    publish(bus, 2)
    open_router().step()
    assert bus.state(JOB).seq == 2


@pytest.mark.row("E3")
@pytest.mark.parametrize("late", [True, False])
def test_the_state_outlives_its_event_in_the_log(empty_redis, open_router, late):
    """The log is trimmed before the router comes, or after it."""
    options = {"domain": "scan", "stages": MANY, "log_length": 3}
    with Bus(empty_redis.url, **options) as bus:
        bus.publish(JOB, "work", {"last": True}, seq=99)
        if not late:
            open_router().step()
        publish(bus, 1, 2, 3, 4)
        open_router().step()
        assert [event.seq for event in bus.read(JOB).events] == [2, 3, 4]
        state = bus.state(JOB)
        assert (state.seq, state.offset, state.data) == (99, 1, {"last": True})
        publish(bus, 100)
        open_router().step()
        assert bus.state(JOB).seq == 100


@pytest.mark.row("E3", "E7")
def test_a_job_that_ran_out_before_a_router_came_has_a_state(bus, client, open_router):
    publish(bus, 1, 9)
    [_, event] = bus.read(JOB).events
    client.delete(JOB_KEY, f"{TAG}:log:{JOB}")
    open_router().step()
    assert bus.state(JOB) == event
    client.xgroup_destroy(STREAM, "router")
    client.xtrim(STREAM, maxlen=2)
    open_router().step()
    assert bus.state(JOB) == event
    publish(bus, 2)
    open_router().step()
    assert bus.state(JOB).seq == 2, "what begins anew has no old state"


def test_a_job_lives_as_long_as_its_state(bus, client, open_router):
    publish(bus, 1)
    for key in (JOB_KEY, f"{TAG}:log:{JOB}"):
        client.expire(key, 100)
    open_router(state_ttl="1h").step()
    assert min(client.ttl(key) for key in (JOB_KEY, f"{TAG}:log:{JOB}")) > 3000


@pytest.mark.row("E4")
def test_whoever_is_woken_finds_the_state_and_nobody_is_woken_without_it(bus, client, open_router):
    with client.pubsub() as ears:
        ears.subscribe(f"{TAG}:log:{JOB}")
        assert ears.get_message(timeout=PATIENCE)["type"] == "subscribe"
        publish(bus, 1)
        open_router().step()
        assert ears.get_message(timeout=PATIENCE)["data"] == bus.state(JOB).id.encode()
        assert (bus.state(JOB).seq, pending(client)) == (1, 0)
        client.hset(JOB_KEY, "top", "somebody else's")
        publish(bus, 2)
        open_router().step()
        client.publish(f"{TAG}:log:{JOB}", "a later one")
        assert ears.get_message(timeout=PATIENCE)["data"] == b"a later one"
        assert pending(client) == 1


@pytest.mark.row("E3", "E7")
def test_what_a_dead_router_had_in_hand_is_taken_over_and_handled_once(bus, client, open_router):
    publish(bus, 1, 2, 3)
    client.xgroup_create(STREAM, "router", "0")
    assert client.xreadgroup("router", "dead", {STREAM: ">"}, count=2)
    late, quick = open_router(claim_after="1h"), open_router(claim_after="10ms")
    assert late.step() == 1
    handled = []
    until(lambda: handled.append(quick.step()) or sum(handled) >= 2)  # in one step or in two
    assert sum(handled) == 2
    assert (pending(client), bus.state(JOB).seq) == (0, 3)


@pytest.mark.row("E3")
def test_a_router_that_was_paused_past_its_claim_changes_nothing(bus, client, open_router):
    publish(bus, 1)
    paused, other = open_router(claim_after="10ms"), open_router(claim_after="10ms")
    shard = paused._shards[shard_of(JOB, 4)]
    handle, held = shard._handle, []
    shard._handle = held.extend  # it has read, and then it sleeps
    paused.step()
    until(lambda: other.step() == 1)
    end_state(client)
    handle(held)
    assert bus.state(JOB) is None
    assert pending(client) == 0


BAD = {
    "nothing of ours": {b"a": b"1"},
    "no json": {b"data": b"\xff{", b"id": b"ab.1.cd"},
    "no event": {b"data": b'{"job_id": "job-1"}', b"id": b"ab.1.cd"},
    "no id": {b"data": b'{"job_id": "job-1"}'},
    "an id of somebody else": {b"data": b"{}", b"id": b"\xff"},
    "no job": {
        b"data": b'{"job_id":"","domain":"scan","stage":"work","seq":1,"data":1,"timestamp":""}',
        b"id": b"ab.1.cd",
    },
    "a number that is none": {
        b"data": b'{"job_id":"j","domain":"scan","stage":"work","seq":"1","data":1,"timestamp":""}',
        b"id": b"ab.1.cd",
    },
}


@pytest.mark.row("E7")
@pytest.mark.parametrize("bad", BAD)
def test_a_malformed_entry_is_buried_with_its_bytes_and_others_flow(
    bus, client, open_router, bad, caplog
):
    publish(bus, 1)
    entry = client.xadd(STREAM, BAD[bad])
    publish(bus, 2)
    open_router().step()
    assert (pending(client), bus.state(JOB).seq) == (0, 2)
    [(_, buried)] = client.xrange(f"{TAG}:dead")
    assert buried.pop(b"entry") == entry
    assert buried.pop(b"reason").startswith(b"malformed: ")
    assert buried.pop(b"deliveries") == b"1"
    assert buried == BAD[bad]
    assert "is dead: malformed" in caplog.text


@pytest.mark.row("E7")
def test_an_entry_that_fails_is_buried_at_its_last_delivery_and_others_flow(
    bus, client, open_router
):
    publish(bus, 1)
    client.hset(JOB_KEY, "top", "somebody else's")
    router = open_router(claim_after="1ms", max_deliveries=3)

    def buried():
        assert router.step() <= 1
        return client.exists(f"{TAG}:dead")

    until(buried)
    [(_, buried)] = client.xrange(f"{TAG}:dead")
    assert buried[b"deliveries"] == b"3"
    assert b"changed by somebody else" in buried[b"reason"]
    assert b'"seq":1' in buried[b"data"]
    assert pending(client) == 0
    assert [event.seq for event in bus.read(JOB).events] == [1]


def test_entries_that_somebody_deleted_are_reported(bus, client, open_router, caplog):
    publish(bus, 1, 2)
    client.xgroup_create(STREAM, "router", "0")
    client.xreadgroup("router", "dead", {STREAM: ">"})
    client.xdel(STREAM, client.xrange(STREAM)[0][0])
    router = open_router(claim_after="1ms")
    until(lambda: router.step() == 1)
    assert "1 entries of" in caplog.text
    assert pending(client) == 0


def test_scripts_that_the_server_forgot_are_told_again(bus, client, open_router):
    router = open_router()
    for seq in (1, 2):
        client.script_flush()
        publish(bus, seq)
        assert router.step() == 1
    assert bus.state(JOB).seq == 2


def test_it_runs_until_it_is_stopped_and_leaves_no_trace(bus, client, open_router):
    router = open_router()
    thread = threading.Thread(target=router.run)
    thread.start()
    publish(bus, 1)
    until(lambda: bus.state(JOB) is not None)
    client.flushall()  # the groups are gone, and it makes them again
    publish(bus, 5)
    until(lambda: bus.state(JOB) is not None)
    router.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert client.xinfo_consumers(STREAM, "router") == []


def test_groups_that_are_gone_are_made_again_before_anything_is_published(
    client, empty_redis, caplog, monkeypatch
):
    """It says so in one sentence for each shard, and not again and again."""
    router = Router(empty_redis.url, domain="scan", shards=2)
    streams = ["{scan:0}:events", "{scan:1}:events"]
    tidy, lost = ShardRouter.tidy, threading.Event()

    def tidy_what_was_lost(shard):  # another error than that of a router that reads
        if shard._stream == streams[0] and not lost.is_set():
            until(lambda: client.exists(*streams) == 2)
            client.flushall()
            lost.set()
        tidy(shard)

    monkeypatch.setattr(ShardRouter, "tidy", tidy_what_was_lost)
    thread = threading.Thread(target=router.run, daemon=True)
    thread.start()
    assert lost.wait(PATIENCE)
    until(lambda: client.exists(*streams) == 2)
    router.stop()
    thread.join(PATIENCE)
    router.close()
    told = [one.message for one in caplog.records]
    assert len(told) == 2, told
    assert all("is gone: Redis has lost it, or somebody removed it" in one for one in told)


def test_a_router_whose_server_is_away_does_not_say_so_again_and_again(another_redis, caplog):
    server = another_redis()
    router = Router(server.url, domain="scan", shards=1)
    thread = threading.Thread(target=router.run, daemon=True)
    thread.start()
    with server.client() as client:
        until(lambda: client.exists("{scan:0}:events"))
    server.kill()
    until(lambda: "waits" in caplog.text)
    pauses = []
    wait, router._stopped.wait = router._stopped.wait, pauses.append
    until(lambda: len(pauses) > 3)
    router._stopped.wait = wait
    router.stop()
    thread.join(PATIENCE)
    router.close()
    told = [one.message for one in caplog.records]
    assert len(told) == len(set(told)), told


def test_it_says_what_is_wrong_with_its_settings(empty_redis):
    for option, value in (
        ("max_deliveries", 0),
        ("max_deliveries", True),
        ("claim_after", "soon"),
        ("domain", ""),
        ("group", ""),
        ("consumer", 7),
        ("observers", print),
    ):
        with pytest.raises(ConfigurationError, match=option):
            Router(empty_redis.url, **{"domain": "scan"} | {option: value})
    for where in ("memory://", Memory(), None):
        with pytest.raises(ConfigurationError, match="streams of Redis"):
            Router(where, domain="scan")


def test_shards_that_disagree_end_the_run(empty_redis, bus):
    publish(bus, 1)
    router = Router(empty_redis.url, domain="scan", shards=2)
    with pytest.raises(ConfigurationError, match="has 4 shards"):
        router.run()
    router.close()


def test_a_step_without_a_server_says_so(another_redis):
    server = another_redis()
    router = Router(server.url, domain="scan")
    server.kill()
    with pytest.raises(StoreError, match="cannot be reached"):
        router.step()
    router.close()
