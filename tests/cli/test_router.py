"""`oncekey router` in a process of its own, on a real Redis."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
import redis
from redis.sentinel import SentinelManagedSSLConnection

from oncekey.cli import router
from oncekey.events import Bus, Draft, Router, Stages
from tests.cli.page import environment
from tests.cli.test_terminal import Terminal
from tests.patience import PATIENCE, until
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

JOBS = [f"job-{number}" for number in range(20)]
EACH = 30
STAGES = Stages({"work": (1, 100)}, final=100)


@pytest.fixture
def bus(empty_redis):
    with Bus(empty_redis.url, domain="scan", stages=STAGES) as bus:
        yield bus


@pytest.fixture
def start(empty_redis):
    """Starts the command; it ends with the test."""
    started = []

    def start(*arguments, **settings):
        process = subprocess.Popen(
            ["oncekey", "router", "--domain", "scan", *arguments],  # noqa: S607 - beside this interpreter
            env={**environment(), "ONCEKEY_STORE": empty_redis.url, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def publish(bus, first, last):
    for seq in range(first, last + 1):
        bus.publish_batch([Draft(job, "work", {"seq": seq}, seq) for job in JOBS])


def routed(bus, seq):
    """Whether the state of every job is the event with this number."""
    states = [bus.state(job) for job in JOBS]
    return all(state is not None and state.seq == seq for state in states)


def until_routed(bus, seq):
    until(lambda: routed(bus, seq))


def step(server):
    """How many entries were left for another router."""
    router = Router(server.url, domain="scan")
    try:
        return router.step()
    finally:
        router.close()


def ended(process, number=signal.SIGTERM):
    process.send_signal(number)
    out, complaints = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaints) == (0, "")
    return out


@pytest.mark.row("E7")
def test_told_to_stop_it_finishes_what_it_has_in_hand_and_loses_nothing(bus, start, empty_redis):
    publish(bus, 1, EACH)
    counts = [{"routed": step(empty_redis)}]
    for number in (signal.SIGTERM, signal.SIGINT):
        process = start("--json")
        json.loads(process.stdout.readline())
        publish(bus, EACH * len(counts) + 1, EACH * (len(counts) + 1))
        counts.append(json.loads(ended(process, number).splitlines()[-1]))
    with empty_redis.client() as client:
        for shard in range(4):
            groups = client.xinfo_groups(f"{{scan:{shard}}}:events")
            # The one that is left is that of `step`, which does not say goodbye.
            assert [(one["pending"], one["consumers"]) for one in groups] == [(0, 1)]
    counts.append({"routed": step(empty_redis)})
    assert sum(one["routed"] for one in counts) == 3 * EACH * len(JOBS)
    assert [(one["event"], one["dead"], one["lost"]) for one in counts[1:3]] == [
        ("stopped", 0, 0)
    ] * 2
    assert routed(bus, 3 * EACH)


def test_it_routes_what_comes_and_says_so_now_and_then(bus, start):
    process = start("--json", "--every", "50ms")
    started = json.loads(process.stdout.readline())
    nothing = dict.fromkeys(("routed", "reclaimed", "trimmed", "dead", "lost"), 0)
    assert started == {"event": "started", "domain": "scan", **nothing}
    publish(bus, 1, 2)
    until_routed(bus, 2)
    while json.loads(process.stdout.readline())["routed"] < 2 * len(JOBS):
        pass
    ended(process)


def test_lines_for_people(bus, start):
    process = start("--every", "0")
    assert process.stdout.readline().startswith("scan: 0 routed, ")
    publish(bus, 1, 1)
    until_routed(bus, 1)
    assert ended(process) == f"scan: {len(JOBS)} routed, 0 reclaimed, 0 trimmed, 0 dead, 0 lost\n"


def test_a_terminal_sees_the_counts_change(bus, empty_redis):
    publish(bus, 1, 1)
    terminal = Terminal("router", "--domain", "scan", "--store", empty_redis.url)
    terminal.until(f"scan: {len(JOBS)} routed")
    terminal.type("\x03")
    terminal._process.send_signal(signal.SIGINT)
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--store", "sqlite:///oncekey.db"), "a router reads streams of Redis; name one with"),
        (("--store", "postgresql://ann:secret@localhost/db"), "a router reads streams of Redis"),
        (("--shards", "0"), "Invalid value for '--shards'"),
        (("--claim-after", "soon"), "claim_after"),
        (("--every", "soon"), "every"),
        (("--state-ttl", "3h"), "marker_ttl must not be shorter than state_ttl"),
        (("--shards", "3"), "shards"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(bus, run, empty_redis, arguments, complaint):
    publish(bus, 1, 1)  # with four shards
    done = run("router", "--domain", "scan", *arguments, ONCEKEY_STORE=empty_redis.url)
    assert done.exit_code == 2
    assert done.stderr.startswith("oncekey: ")
    assert complaint in done.stderr
    assert "secret" not in done.output


def test_without_a_redis_it_waits_and_can_be_stopped(start):
    process = start("--store", "redis://127.0.0.1:1/0", "--json")
    process.stdout.readline()
    assert "waits" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_command_needs_a_domain(run):
    done = run("router")
    assert done.exit_code == 2
    assert "--domain" in done.stderr


@pytest.mark.parametrize("option", [("--cluster",), ("--sentinel", "shop")])
@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://:secret/word@localhost", "in more than one way"),
        ("redis://ann:secret@localhost:secret", "in more than one way"),
        ("redis://ann:secret@localhost:1/0?bogus=1", "the unknown option 'bogus'"),
        ("redis://ann:secret@localhost:1/db", "which is no number"),
    ],
)
def test_no_password_is_said_of_a_cluster_or_a_sentinel(run, option, url, complaint):
    done = run("router", "--domain", "scan", *option, "--store", url)
    assert (done.exit_code, "secret" in done.output + done.stderr) == (2, False)
    assert complaint in done.stderr


def test_a_cluster_that_is_away_is_one_sentence(run):
    url = "redis://ann:secret@127.0.0.1:1/0"
    done = run("router", "--domain", "scan", "--cluster", "--store", url)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("oncekey: the cluster at redis://127.0.0.1:1/0 cannot be used: ")
    assert "secret" not in done.stderr


def test_a_sentinel_that_is_away_is_told_without_all_its_settings(start):
    process = start("--sentinel", "shop", "--store", "redis://ann:secret@127.0.0.1:1/0", "--json")
    process.stdout.readline()
    line = process.stderr.readline()
    assert "No master found for 'shop'" in line
    assert "<redis" not in line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)


def test_a_sentinel_over_tls_leads_to_a_primary_over_tls():
    """No password is sent in clear because the URL names a Sentinel."""
    client = router._client(
        "rediss://ann:x@localhost/0?ssl_ca_certs=a", cluster=False, sentinel="shop"
    )
    pool = client.connection_pool
    assert pool.connection_class is SentinelManagedSSLConnection
    [asked] = pool.sentinel_manager.sentinels
    assert asked.connection_pool.connection_class is redis.SSLConnection
    assert asked.connection_pool.connection_kwargs["ssl_ca_certs"] == "a"
