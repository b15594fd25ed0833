"""What stands in Redis, for whoever reads it with other tools."""

import json

import pytest

from oncekey import ConfigurationError, UnreadableError
from oncekey.events import Bus, Router, Stages, shard_of
from tests.servers.redis_cut import CutLine

JOB = "job-1"
SHARD = shard_of(JOB, 4)
TAG = f"{{scan:{SHARD}}}"


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def open_bus(empty_redis):
    opened = []

    def start(url=None, **options):
        opened.append(Bus(url or empty_redis.url, **{"domain": "scan"} | options))
        return opened[-1]

    yield start
    for bus in opened:
        bus.close()


def step(server, **options):
    router = Router(server.url, domain="scan", **options)
    router.step()
    router.close()


@pytest.mark.row("E2")
def test_an_entry_of_the_stream_is_the_json_of_an_event(open_bus, client):
    assert open_bus().publish(JOB, "vision", {"status": "done"}, seq=10)
    [(_, fields)] = client.xrange(f"{TAG}:events")
    body = json.loads(fields[b"data"])
    assert body.pop("timestamp").endswith("+00:00")
    assert body == {
        "job_id": JOB,
        "domain": "scan",
        "stage": "vision",
        "seq": 10,
        "data": {"status": "done"},
    }


def test_log_and_state_are_lines_that_can_be_cut_at_their_tabs(open_bus, client, empty_redis):
    """With `redis-cli --raw lrange ... | cut -f4`, for example."""
    bus = open_bus()
    bus.publish(JOB, "vision", {"status": "done"}, seq=10)
    [event] = bus.read(JOB).events
    epoch, _, mark = event.id.split(".")
    line = f'1.{mark}.10\t{event.timestamp}\tvision\t{{"status":"done"}}'
    assert client.lrange(f"{TAG}:log:{JOB}", 0, -1) == [line.encode()]
    step(empty_redis)
    assert client.hget(f"{TAG}:job:{JOB}", "epoch") == epoch.encode()
    assert client.hget(f"{TAG}:job:{JOB}", "top").startswith(b"10 1 ")
    client.delete(f"{TAG}:job:{JOB}", f"{TAG}:log:{JOB}")  # as if they had run out
    client.xgroup_destroy(f"{TAG}:events", "router")
    step(empty_redis)
    assert client.get(f"{TAG}:state:{JOB}") == f"{epoch}.{line}".encode()
    assert bus.state(JOB) == event


@pytest.mark.parametrize(
    "stage", ["two words", "a\tb\n", 'say "so"', "back\\slash", "%s ä 🎉", ":1"]
)
def test_any_stage_and_text_comes_back_from_stream_log_and_state(
    open_bus, client, empty_redis, stage
):
    bus, data = open_bus(stages=Stages(default=(0, 9))), {"text": f'"\t{stage}\n\\'}
    bus.publish(JOB, stage, data, seq=1)
    [event] = bus.read(JOB).events
    assert (event.stage, event.seq, event.data) == (stage, 1, data)
    [(_, fields)] = client.xrange(f"{TAG}:events")
    assert json.loads(fields[b"data"]) == {
        "job_id": JOB,
        "domain": "scan",
        "stage": stage,
        "seq": 1,
        "data": data,
        "timestamp": event.timestamp,
    }
    step(empty_redis)
    assert bus.state(JOB) == event
    assert not client.hexists(f"{TAG}:job:{JOB}", "state"), "the state is the event in the log"
    assert bus.publish(JOB, stage, data, seq=1).duplicate


@pytest.mark.row("E2")
def test_all_keys_of_a_job_share_the_tag_of_its_shard(open_bus, client, empty_redis):
    open_bus().publish(JOB, "vision", 1, seq=10)
    step(empty_redis)
    with_job = {key.decode() for key in client.scan_iter() if JOB.encode() in key}
    assert with_job == {f"{TAG}:log:{JOB}", f"{TAG}:job:{JOB}"}
    assert client.xlen(f"{TAG}:events") == 1
    assert client.get("{scan}:shards") == b"4"


@pytest.mark.row("E2")
@pytest.mark.parametrize(
    ("options", "state", "markers"),
    [({}, 3600, 7200), ({"state_ttl": "5min", "marker_ttl": "10min"}, 300, 600)],
)
def test_state_markers_and_log_run_out(  # noqa: PLR0917 - what it needs, and a table
    open_bus, client, empty_redis, options, state, markers
):
    open_bus(**options).publish(JOB, "vision", 1, seq=10)
    step(empty_redis, **options)
    _, _, until = client.hget(f"{TAG}:job:{JOB}", "top").split()
    assert state - 60 < int(until) - client.time()[0] <= state
    assert markers - 60 < client.ttl(f"{TAG}:job:{JOB}") <= markers
    assert markers - 60 < client.ttl(f"{TAG}:log:{JOB}") <= markers


def test_a_forgotten_job_begins_another_epoch_with_an_empty_log(open_bus, client):
    bus = open_bus()
    first = bus.publish(JOB, "vision", 1, seq=10)
    seen = bus.read(JOB).cursor
    client.delete(f"{TAG}:job:{JOB}")  # as if evicted alone
    second = bus.publish(JOB, "vision", 2, seq=10)
    assert second
    assert (second.offset, second.epoch != first.epoch) == (1, True)
    page = bus.read(JOB, after=seen)
    assert page.resync.reason == "epoch"
    assert [event.data for event in page.events] == [2]


def test_a_log_that_was_evicted_alone_is_a_resync_and_the_next_event_follows(open_bus, client):
    bus = open_bus()
    bus.publish(JOB, "vision", 1, seq=10)
    seen = bus.read(JOB).cursor
    client.delete(f"{TAG}:log:{JOB}")
    page = bus.read(JOB, after=seen)
    assert (page.events, page.resync.reason) == ([], "trimmed")
    bus.publish(JOB, "vision", 2, seq=11)
    page = bus.read(JOB, after=page.cursor)
    assert ([event.offset for event in page.events], page.resync) == ([2], None)


@pytest.mark.row("E2")
def test_a_client_with_another_number_of_shards_refuses(open_bus, empty_redis):
    open_bus(shards=8).publish(JOB, "vision", 1, seq=10)
    for bus in (open_bus(), open_bus(shards=2)):
        with pytest.raises(ConfigurationError, match="has 8 shards, not"):
            bus.publish(JOB, "vision", 1, seq=10)
        with pytest.raises(ConfigurationError, match="has 8 shards, not"):
            bus.read(JOB)
    with pytest.raises(ConfigurationError, match="has 8 shards, not 4"):
        step(empty_redis)
    assert open_bus(domain="chat", shards=2).publish(JOB, "vision", 1, seq=10)


@pytest.mark.row("E2")
def test_after_a_loss_of_all_data_another_number_of_shards_is_refused(open_bus, client):
    """Both have agreed before, and neither asks again but for a job that begins."""
    four, eight = open_bus(), open_bus(shards=8)
    four.publish(JOB, "vision", 1, seq=10)
    client.flushall()
    eight.publish(JOB, "vision", 1, seq=10)
    client.flushall()
    four.publish(JOB, "vision", 1, seq=10)
    for number in range(20):  # whichever shard it goes to
        with pytest.raises(ConfigurationError, match="has 4 shards, not 8"):
            eight.publish(f"other-{number}", "vision", 1, seq=10)
        with pytest.raises(ConfigurationError, match="has 4 shards, not 8"):
            eight.read(f"other-{number}")
    assert four.publish("another", "vision", 1, seq=10)
    assert len(list(client.scan_iter("*:log:*"))) == 2


def test_a_log_that_somebody_else_changed_is_noticed(open_bus, client):
    bus, name = open_bus(), f"{TAG}:log:{JOB}"
    for seq in (10, 11, 12):
        bus.publish(JOB, "vision", seq, seq=seq)
    whole = client.lrange(name, 0, -1)
    for changed in ([*whole, b"mine"], [whole[0], whole[2]], whole[:2]):
        client.delete(name)
        client.rpush(name, *changed)
        with pytest.raises(UnreadableError, match="was changed by somebody else"):
            bus.read(JOB)
    client.delete(name)
    client.rpush(name, *whole[1:])  # as if trimmed
    assert bus.read(JOB).resync.reason == "trimmed"


def test_a_lost_reply_is_asked_for_again_and_is_no_duplicate(open_bus, empty_redis):
    line = CutLine(empty_redis.port)
    bus = open_bus(line.url)
    bus.publish(JOB, "vision", 1, seq=10)
    line.cut = True
    published = bus.publish(JOB, "vision", 2, seq=11)
    assert not line.cut
    assert (published.offset, published.duplicate) == (2, False)
    assert [event.seq for event in open_bus().read(JOB).events] == [10, 11]
    line.close()


def test_scripts_that_the_server_forgot_are_told_again(open_bus, client):
    bus = open_bus(stages=Stages({"work": (0, 99)}))
    for number in range(0, 40, 10):
        client.script_flush()
        assert bus.publish(JOB, "work", 1, seq=number)
        client.script_flush()
        drafts = [(JOB, "work", 1, number + n) for n in range(1, 10)]
        assert all(bus.publish_batch(drafts))
        client.script_flush()
        assert len(bus.read(JOB).events) == number + 10


def test_a_key_of_somebody_else_leaves_nothing_half_done(open_bus, client):
    client.set(f"{TAG}:log:{JOB}", "mine")
    with pytest.raises(Exception, match="nothing was changed"):
        open_bus().publish(JOB, "vision", 1, seq=10)
    assert not client.exists(f"{TAG}:events", f"{TAG}:job:{JOB}")
