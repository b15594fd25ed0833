"""The mock cluster of librdkafka, which runs in this process and is no real broker of Kafka."""

import pytest
from confluent_kafka import Producer


class MockCluster:
    """Brokers that any client can speak to, as long as the producer is there."""

    def __init__(self):
        self._producer = Producer({"test.mock.num.brokers": 3, "log_level": 0})
        brokers = self._producer.list_topics(timeout=30).brokers.values()
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
        self._topics = 0

    def new_topic(self):
        """Return the name of a topic with four partitions, as the cluster makes them by itself."""
        self._topics += 1
        name = f"orders{self._topics}"
        found = self._producer.list_topics(name, timeout=30).topics[name]
        assert len(found.partitions) == 4
        return name

    def place(self, topic, partition, *bodies):
        for body in bodies:
            self._producer.produce(topic, body.encode(), partition=partition)
        assert self._producer.flush(30) == 0


@pytest.fixture(scope="session")
def kafka():
    return MockCluster()
