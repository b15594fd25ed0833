"""Redis servers that replace their own leader: under three Sentinels, and as a cluster.

Servers reach each other through gates and from addresses of their own, so that one of them can be
cut off from the others and not from its clients.
"""

import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import redis

from tests.faults.matrix.gate import Gate
from tests.patience import until
from tests.servers.ports import CLUSTER_BUS
from tests.servers.redis import RedisServer, program

FAULTS = ("killed", "paused", "cut off")
NAME = "shop"
_WATCHERS = "127.0.0.99"
_SLOTS = 16384
_MILLISECONDS = "2000"
"""How long a server says nothing until it is taken for dead."""


@cache
def called_from(address: str) -> dict[str, str]:
    """Return the settings of a server that calls others from this address.

    Redis 6.2 does it from the first address that it is bound to.
    """
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True)
    if " v=6." in said.stdout:
        return {"bind": f"{address} 127.0.0.1"}
    return {"bind": "127.0.0.1", "bind-source-addr": address}


class _Node:
    """A server, the gates before it, and the address from which it calls others."""

    def __init__(self, stack: ExitStack, folder: Path, number: int, **options: str) -> None:
        """Choose ports. Nothing runs yet."""
        place = folder / f"node-{number}"
        place.mkdir()
        self.address = f"127.0.0.{number + 2}"
        cluster = "cluster-enabled" in options
        options = {
            **called_from(self.address),
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": "0",
            "appendonly": "yes",
            **options,
        }
        self.server = RedisServer(place, **options)
        self.door = Gate(self.server.port)
        self.gates = [self.door]
        self.announced = {"replica-announce-ip": "127.0.0.1"}
        self.announced["replica-announce-port"] = str(self.door.port)
        if cluster:
            bus = Gate(self.server.port + CLUSTER_BUS)
            self.gates.append(bus)
            self.announced = {
                "cluster-announce-ip": "127.0.0.1",
                "cluster-announce-port": str(self.door.port),
                "cluster-announce-bus-port": str(bus.port),
            }
        self.server.options = {**self.server.options, **self.announced}
        for gate in self.gates:
            stack.callback(gate.close)
        stack.callback(self._end)

    def says(self, *words: str) -> Any:
        """Return its answer, or None if it does not answer in time."""
        with (
            suppress(redis.RedisError),
            self.server.client(socket_timeout=2, decode_responses=True) as client,
        ):
            return client.execute_command(*words)
        return None

    def replication(self) -> dict[str, Any]:
        return self.says("INFO", "replication") or {}

    def _end(self) -> None:
        if self.server.process is not None:
            self.server.kill()


class _Group:
    """Several nodes, of which one is broken at a time."""

    faults: Sequence[str] = FAULTS

    def __init__(self) -> None:
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-redis-"))
        self.folder = Path(folder)
        self.nodes: list[_Node] = []
        self._count = 0
        try:
            self.start()
            until(self.healthy)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        raise NotImplementedError

    def healthy(self) -> bool:
        raise NotImplementedError

    def leader(self) -> _Node:
        raise NotImplementedError

    def replaced(self, old: _Node) -> bool:
        raise NotImplementedError

    def fail_over(self, fault: str) -> None:
        """Break a leader. Return when another one is in its place, and it follows that one."""
        leader = self.leader()
        _BREAK[fault](self, leader)
        until(lambda: self.replaced(leader))
        _MEND[fault](self, leader)
        until(self.healthy)

    def number(self) -> int:
        """Return another number each time, for the names of keys."""
        self._count += 1
        return self._count

    def close(self) -> None:
        self.stack.close()


def _cut_off(group: _Group, node: _Node) -> None:
    others = [one.address for one in group.nodes if one is not node]
    for one in group.nodes:
        for gate in one.gates:
            gate.bar([*others, _WATCHERS] if one is node else [node.address])


def _connect(group: _Group, _: _Node) -> None:
    for one in group.nodes:
        for gate in one.gates:
            gate.thaw()


_BREAK: dict[str, Callable[[_Group, _Node], None]] = {
    "killed": lambda _, node: node.server.kill(),
    "paused": lambda _, node: node.server.process.send_signal(signal.SIGSTOP),
    "cut off": _cut_off,
}
_MEND: dict[str, Callable[[_Group, _Node], object]] = {
    "killed": lambda _, node: node.server.start(),
    "paused": lambda _, node: node.server.process.send_signal(signal.SIGCONT),
    "cut off": _connect,
}


class _Sentinel(RedisServer):
    """A Sentinel, which calls from an address that all of them share."""

    def __init__(self, folder: Path, primary: int) -> None:
        super().__init__(folder)
        self._primary = primary

    def words(self) -> list[str]:
        file = self.folder / "sentinel.conf"
        directives = "".join(f"{k} {v}\n" for k, v in called_from(_WATCHERS).items())
        file.write_text(
            f"port {self.port}\n{directives}"
            f"dir {self.folder}\nlogfile {self.folder}/sentinel.log\n"
            f"sentinel announce-ip 127.0.0.1\n"
            f"sentinel monitor {NAME} 127.0.0.1 {self._primary} 2\n"
            f"sentinel down-after-milliseconds {NAME} {_MILLISECONDS}\n"
            f"sentinel failover-timeout {NAME} 3000\n"
        )
        return [program(), str(file), "--sentinel"]


class SentinelGroup(_Group):
    """A primary with two replicas, and three Sentinels of which two must agree."""

    def start(self) -> None:
        """Start all of them."""
        self.nodes = [_Node(self.stack, self.folder, number) for number in range(3)]
        first, *rest = self.nodes
        first.server.start()
        for node in rest:
            node.server.start()
            node.says("REPLICAOF", "127.0.0.1", str(first.door.port))
        until(lambda: len(self._online(first)) == len(rest))
        self._watchers = []
        for number in range(3):
            place = self.folder / f"sentinel-{number}"
            place.mkdir()
            self._watchers.append(_Sentinel(place, first.door.port).start())
            self.stack.callback(self._watchers[-1].kill)

    def fresh(self) -> str:
        """Return an address for `store_at`, with a prefix of its own."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self._watchers)
        return f"sentinel://{hosts}/{NAME}?prefix=g{self.number()}:"

    def leader(self) -> _Node:
        """Return the one that the Sentinels name."""
        ports = {self._named(watcher) for watcher in self._watchers}
        return next(node for node in self.nodes if node.door.port in ports)

    def replaced(self, old: _Node) -> bool:
        """Return whether all Sentinels name another one, which is a primary."""
        ports = {self._named(watcher) for watcher in self._watchers}
        new = next((node for node in self.nodes if {node.door.port} == ports), old)
        return new is not old and new.replication().get("role") == "master"

    def healthy(self) -> bool:
        """Return whether both others follow the leader, and every Sentinel knows all."""
        ports = {self._named(watcher) for watcher in self._watchers}
        new = next((node for node in self.nodes if {node.door.port} == ports), None)
        if new is None or len(self._online(new)) < len(self.nodes) - 1:
            return False
        return all(map(self._knows_all, self._watchers))

    def _named(self, watcher: RedisServer) -> int:
        with watcher.client() as client:
            return int(client.sentinel_get_master_addr_by_name(NAME)[1])

    def _knows_all(self, watcher: RedisServer) -> bool:
        with watcher.client() as client:
            facts = client.sentinel_master(NAME)
            replicas = client.sentinel_slaves(NAME)
        alive = [one for one in replicas if not (one["is_sdown"] or one["is_disconnected"])]
        quorum = facts["num-other-sentinels"] == len(self._watchers) - 1
        return quorum and len(alive) == len(self.nodes) - 1 and facts["flags"] == "master"

    @staticmethod
    def _online(node: _Node) -> list[Any]:
        facts = node.replication()
        found = [value for name, value in facts.items() if name.startswith("slave")]
        return [one for one in found if isinstance(one, dict) and one.get("state") == "online"]


class ClusterGroup(_Group):
    """A Redis Cluster of three primaries, each with a replica."""

    def start(self) -> None:
        """Start all of them, share out the slots, and let each replica follow its primary."""
        options = {"cluster-enabled": "yes", "cluster-node-timeout": _MILLISECONDS}
        options["cluster-replica-validity-factor"] = "0"
        self.nodes = [_Node(self.stack, self.folder, one, **options) for one in range(6)]
        self._next = 0
        for node in self.nodes:
            node.server.start()
        for number, node in enumerate(self.nodes):
            if number < 3:
                ours = range(number * _SLOTS // 3, (number + 1) * _SLOTS // 3)
                node.says("CLUSTER", "ADDSLOTS", *map(str, ours))
                node.says("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            door, bus = self.nodes[0].gates
            if number:
                node.says("CLUSTER", "MEET", "127.0.0.1", str(door.port), str(bus.port))
        names = [node.says("CLUSTER", "MYID") for node in self.nodes]
        until(lambda: all(len(self._table(node)) == len(names) for node in self.nodes))
        for node, primary in zip(self.nodes[3:], names, strict=False):
            until(partial(node.says, "CLUSTER", "REPLICATE", primary))

    def fresh(self) -> str:
        """Return an address for `store_at`, with a prefix of its own."""
        hosts = ",".join(f"127.0.0.1:{node.door.port}" for node in self.nodes)
        return f"cluster://{hosts}?prefix=g{self.number()}:"

    def leader(self) -> _Node:
        """Return one of the primaries, another one each time."""
        leaders = [one for one in self.nodes if one.replication().get("role") == "master"]
        self._next += 1
        return leaders[self._next % len(leaders)]

    def replaced(self, old: _Node) -> bool:
        """Return whether the others have a primary for every slot without this one."""
        others = [node for node in self.nodes if node is not old]
        masters = [one for one in others if one.replication().get("role") == "master"]
        return len(masters) == 3 and all(map(self._works, others))

    def healthy(self) -> bool:
        """Return whether every slot has a primary, and each of those a replica that follows."""
        replication = [node.replication() for node in self.nodes]
        followed = [one for one in replication if one.get("connected_slaves") == 1]
        linked = [one for one in replication if one.get("master_link_status") == "up"]
        tables = [self._table(node) for node in self.nodes]
        known = all(len(one) == 6 and "fail" not in str(one) for one in tables)
        return len(followed) == len(linked) == 3 and known and all(map(self._works, self.nodes))

    @staticmethod
    def _works(node: _Node) -> bool:
        return (node.says("CLUSTER INFO") or {}).get("cluster_state") == "ok"

    @staticmethod
    def _table(node: _Node) -> dict[str, Any]:
        return node.says("CLUSTER NODES") or {}
