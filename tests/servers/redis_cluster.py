"""A Redis Cluster of three nodes on the loopback, each with a third of the slots."""

import time

from tests.patience import PATIENCE
from tests.servers.redis import RedisServer

SLOTS = 16384


class RedisCluster:
    def __init__(self, folder):
        self.nodes = [self._node(folder / str(number)) for number in range(3)]

    def _node(self, folder):
        folder.mkdir()
        return RedisServer(folder, **{"cluster-enabled": "yes"})

    def start(self):
        for server in self.nodes:
            server.start()
        for number, server in enumerate(self.nodes):
            ours = range(number * SLOTS // 3, (number + 1) * SLOTS // 3)
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *ours)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        give_up = time.monotonic() + PATIENCE
        while not all(map(_ready, self.nodes)):
            assert time.monotonic() < give_up, "the nodes did not find each other"
            time.sleep(0.02)
        return self

    @property
    def address(self):
        return {"host": "127.0.0.1", "port": self.nodes[0].port}

    def stop(self):
        for server in self.nodes:
            server.stop()


def _ready(server):
    with server.client() as client:
        facts = client.execute_command("CLUSTER INFO")
    return (facts["cluster_state"], facts["cluster_known_nodes"]) == ("ok", "3")
