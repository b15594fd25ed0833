"""A primary, its replica, and a Sentinel that puts the one in the place of the other."""

import time

from tests.patience import PATIENCE
from tests.servers.redis import RedisServer, program

NAME = "shop"


class SentinelServer(RedisServer):
    """A redis-server that is a Sentinel: it keeps no data, and its settings are in a file."""

    def __init__(self, folder, primary):
        super().__init__(folder)
        self._primary = primary

    def words(self):
        file = self.folder / "sentinel.conf"
        file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"logfile {self.folder}/sentinel.log\n"
            f"sentinel monitor {NAME} 127.0.0.1 {self._primary.port} 1\n"
            f"sentinel down-after-milliseconds {NAME} {PATIENCE * 1000:.0f}\n"
            f"sentinel failover-timeout {NAME} 2000\n"
        )
        return [program(), str(file), "--sentinel"]


class Watched:
    """All three. Stopping one that is gone already is allowed."""

    def __init__(self, folder):
        quick = {"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"}
        self.primary = RedisServer(folder, **quick).start()
        self.replica = RedisServer(folder, replicaof=f"127.0.0.1 {self.primary.port}").start()
        self.sentinel = SentinelServer(folder, self.primary).start()
        self.address = ("127.0.0.1", self.sentinel.port)
        self._wait_for_the_replica()

    def _wait_for_the_replica(self):
        give_up = time.monotonic() + PATIENCE
        with self.primary.client() as primary, self.sentinel.client() as sentinel:
            while not (primary.wait(1, 100) and sentinel.sentinel_slaves(NAME)):
                assert time.monotonic() < give_up, "the Sentinel did not find the replica"

    def fail_over(self):
        """Kill the primary, and return when the replica stands in its place.

        Until then the Sentinel is patient, so that a slow machine looks like no dead primary.
        """
        self.primary.kill()
        assert self.primary.process.returncode == -9
        give_up = time.monotonic() + PATIENCE
        with self.replica.client() as client, self.sentinel.client() as sentinel:
            sentinel.sentinel_set(NAME, "down-after-milliseconds", 500)
            while (
                client.role()[0] != b"master"
                or sentinel.sentinel_get_master_addr_by_name(NAME)[1] != self.replica.port
            ):
                assert time.monotonic() < give_up, "there was no fail-over"
                time.sleep(0.02)

    def stop(self):
        for server in (self.sentinel, self.replica, self.primary):
            server.stop()
