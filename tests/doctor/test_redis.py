"""What the doctor finds on real servers of Redis and Valkey, and on those that will not tell."""

from contextlib import closing

import pytest
import redis
import redis.asyncio

from oncekey import Once
from oncekey.doctor import examine, examine_async
from oncekey.doctor.examination import conduct
from oncekey.doctor.redis import Server, examination
from oncekey.errors import ConfigurationError, StoreError
from oncekey.events import Bus, Router, Stages
from oncekey.stores import AsyncRedisStore, RedisStore, open_store
from oncekey.stores.redis.browse import correct_held
from tests.doctor.conftest import SAFE
from tests.heavy import HEAVY
from tests.servers.redis_cluster import SLOTS, RedisCluster
from tests.servers.redis_fixtures import another_redis  # noqa: F401 - a fixture
from tests.servers.valkey import ValkeyServer


@pytest.fixture
def look(by_check):
    def look(server, **options):
        store = RedisStore.from_url(server.url, **options)
        try:
            return by_check(examine(store))
        finally:
            store.close()

    return look


def severities(found):
    return {check: finding.severity for check, finding in found.items()}


def test_a_safe_server_is_fine(safe_redis, look):
    found = look(safe_redis)
    assert set(severities(found).values()) == {"fine"}
    assert set(found) == {
        *("redis.version", "redis.role", "redis.eviction", "redis.persistence", "redis.fsync"),
        *("redis.replication", "redis.clock", "redis.held", "redis.held_long"),
    }
    assert found["redis.fsync"].evidence == "appendfsync=everysec"


def test_a_safe_valkey_is_fine(tmp_path, look):
    server = ValkeyServer(tmp_path, **SAFE).start()
    try:
        assert set(severities(look(server)).values()) == {"fine"}
    finally:
        server.stop()


def test_held_records_are_compared_with_the_set_that_counts_them(safe_redis, look):
    once = Once(safe_redis.url, observers=()).options(on_crash="hold")
    for key in ("a", "b", "c"):
        with pytest.raises(TimeoutError), once.attempt(key):
            raise TimeoutError
    assert look(safe_redis)["redis.held"].severity == "fine"
    with safe_redis.client() as client:
        client.delete("idempotency:a")  # as somebody may do who does not know better
        client.zrem("idempotency:/held", "idempotency:b")
        found = look(safe_redis)["redis.held"]
        assert found.severity == "warning"
        assert "oncekey migrate" in found.fix
        assert correct_held(once.store) == 2
        assert sorted(client.zrange("idempotency:/held", 0, -1)) == [
            b"idempotency:b",
            b"idempotency:c",
        ]
        assert int(client.zscore("idempotency:/held", "idempotency:b")) == once.get("b").updated
    assert look(safe_redis)["redis.held"].severity == "fine"
    assert correct_held(once.store) == 0
    once.close()


def test_what_a_rewrite_may_lose_is_told(safe_redis, look):
    assert "redis.rewrite" not in look(safe_redis)
    with safe_redis.client() as client:
        client.config_set("no-appendfsync-on-rewrite", "yes")
        found = look(safe_redis)["redis.rewrite"]
        client.config_set("no-appendfsync-on-rewrite", "no")
    assert found.severity == "warning"


def test_what_is_held_for_long_is_told(safe_redis, look):
    once = Once(safe_redis.url, observers=()).options(on_crash="hold")
    with pytest.raises(TimeoutError), once.attempt("a"):
        raise TimeoutError
    assert look(safe_redis)["redis.held_long"].severity == "fine"
    with safe_redis.client() as client:
        client.zincrby("idempotency:/held", -3 * 3_600_000_000, "idempotency:a")
    found = look(safe_redis)["redis.held_long"]
    assert (found.severity, found.evidence) == ("warning", "held=1, the oldest one for 3 h")
    once.close()


def test_a_router_that_is_missing_is_told(safe_redis, by_check):
    store = RedisStore.from_url(safe_redis.url)
    bus = Bus(safe_redis.url, domain="scan", stages=Stages(default=(0, 9)))
    assert "events.router" not in by_check(examine(store, events=bus.settings))
    bus.publish("job-1", "seen", {"n": 1}, step=0)
    findings = examine(store, events=bus.settings)
    assert sum(one.check == "events.router" for one in findings) == 1
    found = by_check(findings)["events.router"]
    assert found.severity == "warning"
    assert "oncekey router --domain scan" in found.fix
    with closing(Router(safe_redis.url, domain="scan")) as router:
        router.step()
        found = by_check(examine(store, events=bus.settings))["events.router"]
    assert found.severity == "fine"
    bus.close()
    store.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_evicts_is_dangerous(safe_redis, look, policy):
    with safe_redis.client() as client:
        client.config_set("maxmemory-policy", policy)
    found = look(safe_redis)["redis.eviction"]
    assert found.severity == "danger"
    assert found.evidence == f"maxmemory-policy={policy}, maxmemory=0"
    assert ("go first" in found.meaning) == policy.startswith("volatile")
    assert "noeviction" in found.fix


def test_a_server_that_forgets_at_a_restart_is_dangerous(safe_redis, look):
    with safe_redis.client() as client:
        client.config_set("appendonly", "no")
    found = look(safe_redis)
    assert (found["redis.persistence"].severity, found["redis.persistence"].evidence) == (
        "danger",
        "appendonly=no",
    )
    assert "redis.fsync" not in found


@pytest.mark.parametrize(
    ("fsync", "severity"), [("always", "fine"), ("everysec", "fine"), ("no", "warning")]
)
def test_what_a_power_cut_loses_is_said(safe_redis, look, fsync, severity):
    with safe_redis.client() as client:
        client.config_set("appendfsync", fsync)
    found = look(safe_redis)["redis.fsync"]
    assert (found.severity, found.evidence) == (severity, f"appendfsync={fsync}")


def test_a_server_that_is_nearly_full_is_noticed(safe_redis, look, until):
    with safe_redis.client() as client:
        client.setrange("ballast", 60_000_000, b"x")

        def nearly_full():
            """What earlier tests have left, such as garbage of Lua, may be freed at any moment."""
            used = client.info("memory")["used_memory"]
            client.config_set("maxmemory", used + 500_000)  # not so full that anything is refused
            return look(safe_redis).get("redis.memory")

        found = until(nearly_full)
    assert found.severity == "warning"
    assert "maxmemory=" in found.evidence


# Replicas


@pytest.fixture
def replicated(safe_redis, another_redis, until):  # noqa: F811 - the fixture above
    replica = another_redis(replicaof=f"127.0.0.1 {safe_redis.port}")
    with safe_redis.client() as client, replica.client() as other:
        until(lambda: client.info("replication")["connected_slaves"] == 1)
        yield safe_redis, replica
        other.replicaof("NO", "ONE")
        until(lambda: client.info("replication")["connected_slaves"] == 0)


def test_replicas_that_nobody_waits_for_are_a_warning_and_a_replica_is_no_store(replicated, look):
    primary, replica = replicated
    found = look(primary)["redis.replication"]
    assert (found.severity, "wait=off" in found.evidence) == ("warning", True)
    with primary.client() as client:
        client.config_set("min-replicas-to-write", 1)
    half = look(primary)["redis.replication"]
    assert (half.severity, "min-replicas-to-write=1" in half.evidence) == ("warning", True)
    assert look(primary, wait=(1, "100ms"))["redis.replication"].severity == "fine"
    too_many = look(primary, wait=(2, "100ms"))["redis.replication"]
    assert (too_many.severity, "wait=2" in too_many.evidence) == ("danger", True)
    behind = look(replica)["redis.role"]
    assert (behind.severity, behind.evidence) == ("danger", "role=slave")


# Servers that do not tell


def user(server, *rules):
    with server.client() as client:
        client.acl_setuser("app", enabled=True, passwords=["+pass"], keys=["*"], commands=rules)
    return RedisStore.from_url(f"redis://app:pass@127.0.0.1:{server.port}/0")


@pytest.mark.parametrize("setting", [{}, {"maxmemory-policy": "allkeys-lru", "appendonly": "no"}])
def test_where_config_is_refused_info_tells_what_matters_most(safe_redis, by_check, setting):
    with safe_redis.client() as client:
        for name, value in setting.items():
            client.config_set(name, value)
    store = user(safe_redis, "+@all", "-config")
    found = by_check(examine(store))
    store.close()
    wanted = "danger" if setting else "fine"
    assert found["redis.eviction"].severity == wanted
    assert found["redis.persistence"].severity == wanted
    if not setting:
        assert found["redis.fsync"].severity == "warning"
        assert found["redis.fsync"].meaning == "nobody could look at what a power cut loses"
        assert found["redis.fsync"].evidence.startswith("CONFIG GET: ")


def test_where_config_does_not_exist_it_is_the_same(another_redis, look):  # noqa: F811 - as above
    server = another_redis(**SAFE, **{"rename-command": "CONFIG hidden"})
    found = look(server)
    assert found["redis.eviction"].severity == "fine"
    assert found["redis.fsync"].severity == "warning"
    assert "unknown command" in found["redis.fsync"].evidence


def test_a_server_that_tells_nothing_is_said_to_tell_nothing(safe_redis, by_check):
    store = user(safe_redis, "+@all", "-config", "-info", "-time")
    found = by_check(examine(store))
    store.close()
    assert found.pop("redis.held").severity == "fine"  # which needs only what the store needs
    assert set(severities(found).values()) == {"warning"}
    assert set(found) == {
        *("redis.version", "redis.role", "redis.eviction", "redis.persistence"),
        "redis.replication",
    }
    for finding in found.values():
        assert finding.meaning.startswith("nobody could look at ")
        assert finding.evidence.startswith("INFO: ")


def test_with_config_alone_what_it_tells_counts(safe_redis, by_check):
    store = user(safe_redis, "+@all", "-info")
    found = by_check(examine(store))
    store.close()
    assert found["redis.eviction"].evidence == "maxmemory-policy=noeviction, maxmemory=unknown"
    assert found["redis.persistence"].severity == "fine"
    assert found["redis.version"].severity == "warning"


def test_a_server_that_is_not_there_is_an_error(another_redis):  # noqa: F811 - as above
    server = another_redis()
    server.kill()
    with pytest.raises(StoreError, match="cannot be reached"):
        examine(RedisStore.from_url(server.url))


# Clocks and versions, as no real server has them here


def answering(server, **instead):
    """Asks the real server, except for some commands."""

    def ask(words):
        if words[0] in instead:
            change = instead[words[0]]
            return change(client.execute_command(*words))
        return client.execute_command(*words)

    with server.client() as client:
        return {finding.check: finding for finding in conduct(examination(Server()), ask)}


@pytest.mark.parametrize(
    ("ahead", "severity"), [(0, "fine"), (-0.9, "fine"), (1.5, "warning"), (-60, "warning")]
)
def test_clocks_that_differ_by_more_than_a_second_are_noticed(safe_redis, ahead, severity):
    def moved(reply):
        moment = int(reply[0]) * 1_000_000 + int(reply[1]) + round(ahead * 1_000_000)
        return divmod(moment, 1_000_000)

    found = answering(safe_redis, TIME=moved)["redis.clock"]
    assert found.severity == severity
    assert "this machine's" in found.evidence


@pytest.mark.parametrize(("version", "severity"), [("6.0.20", "danger"), ("10.0.1", "fine")])
def test_a_server_that_is_too_old_is_named(safe_redis, version, severity):
    found = answering(safe_redis, INFO=lambda info: {**info, "redis_version": version})
    assert found["redis.version"].severity == severity


def test_a_server_whose_disk_is_full_is_dangerous(safe_redis):
    found = answering(safe_redis, INFO=lambda info: {**info, "aof_last_write_status": "err"})
    assert found["redis.persistence"].severity == "danger"
    assert found["redis.persistence"].evidence == "aof_last_write_status=err"


# Clusters


class SmallCluster(RedisCluster):
    """One node that has all the slots: it has nobody to find, and is there at once."""

    def __init__(self, folder):
        self.nodes = [self._node(folder / "0")]

    def start(self):
        [server] = self.nodes
        with server.start().client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                pass
        return self


@pytest.fixture(scope="module", params=[SmallCluster, *([RedisCluster] if HEAVY else [])])
def cluster(request, tmp_path_factory):
    nodes = request.param(tmp_path_factory.mktemp("doctor-cluster"))
    try:
        yield nodes.start()
    finally:
        nodes.stop()


def test_every_primary_of_a_cluster_is_asked(cluster, by_check):
    with cluster.nodes[-1].client() as client:
        client.config_set("maxmemory-policy", "allkeys-lfu")
    with redis.RedisCluster(**cluster.address) as client:
        findings = examine(RedisStore(client))
        tagged = by_check(examine(RedisStore(client, prefix="{shop}:")))
    with cluster.nodes[-1].client() as client:
        client.config_set("maxmemory-policy", "noeviction")
    policies = [one.evidence for one in findings if one.check == "redis.eviction"]
    evicts, keeps = (
        f"maxmemory-policy={one}, maxmemory=0" for one in ("allkeys-lfu", "noeviction")
    )
    assert policies == [evicts, *([keeps] if len(cluster.nodes) > 1 else [])]
    assert by_check(findings)["redis.cluster"].severity == "fine"
    assert tagged["redis.cluster"].severity == "warning"
    assert "'{shop}:'" in tagged["redis.cluster"].evidence


def test_a_node_of_a_cluster_alone_is_dangerous(cluster, look):
    found = look(cluster.nodes[0])["redis.cluster"]
    assert (found.severity, found.evidence) == ("danger", "cluster_enabled=1")


# Coroutines


async def test_coroutines_find_the_same(safe_redis, cluster):
    store = AsyncRedisStore.from_url(safe_redis.url)
    blocking = open_store(safe_redis.url)
    found, same = await examine_async(store), await examine_async(blocking)
    assert [(one.check, one.severity) for one in found] == [
        (one.check, one.severity) for one in same
    ]
    await store.aclose()
    blocking.close()
    async with redis.asyncio.RedisCluster(**cluster.address) as client:
        found = await examine_async(AsyncRedisStore(client))
        assert "redis.cluster" in {one.check for one in found}


async def test_a_store_for_coroutines_is_not_asked_by_code_that_blocks(safe_redis):
    store = AsyncRedisStore.from_url(safe_redis.url)
    with pytest.raises(ConfigurationError, match="examine_async"):
        examine(store)
    await store.aclose()


# Events


def test_logs_of_events_that_end_before_their_markers_are_dangerous(safe_redis, by_check):
    bus = Bus(safe_redis.url, domain="scan", stages=Stages(), shards=2)
    store = RedisStore.from_url(safe_redis.url)
    try:
        bus.publish("job-1", "done", {}, step=0)
        kept = by_check(examine(store, events=bus.settings))["events.retention"]
        assert kept.severity == "fine"
        with safe_redis.client() as client:
            [log] = client.keys("*:log:job-1")
            client.expire(log, 60)
        cut = by_check(examine(store, events=bus.settings))["events.retention"]
        assert cut.severity == "danger"
        assert "log 60 s, markers 7200 s left" in cut.evidence
        quiet = by_check(examine(store, events=Bus(safe_redis.url, domain="other").settings))
        assert "events.retention" not in quiet
        assert "events.router" not in quiet
        assert kept.check == "events.retention"
        alone = by_check(examine(store, events=bus.settings))["events.router"]
        assert alone.severity == "warning"
        with Bus(safe_redis.url, domain="scan", shards=2) as watcher:
            watcher.read("job-2")  # whoever waits for a job makes no log
        with safe_redis.client() as client:
            [stream] = client.keys("*:events")
            client.xgroup_create(stream, "router", "0")
        left = by_check(examine(store, events=bus.settings))["events.router"]
        assert left.severity == "warning"  # its group is there, but nobody reads
    finally:
        bus.close()
        store.close()


def test_what_is_no_bus_is_refused(safe_redis):
    with pytest.raises(ConfigurationError, match=r"events=bus\.settings"):
        examine(RedisStore.from_url(safe_redis.url), events="scan")
