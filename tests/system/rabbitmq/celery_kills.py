"""Kill Celery workers at random while they work through a quorum queue, and count what was done.

    python -m tests.system.rabbitmq.celery_kills --jobs 200 --lease 5min --lease 30s --lease 5s

starts a RabbitMQ, a Redis and two workers, and ends when every job is done or a dead letter, or
when nothing was done for too long. It exits with 1 if a job was lost or done twice.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.jobs.site import Worker
from tests.patience import PATIENCE, until
from tests.servers.redis import RedisServer
from tests.system.rabbitmq.celery_app import make
from tests.system.rabbitmq.server import RabbitServer

MODULE = "tests.system.rabbitmq.celery_app"


class KillRun:
    """A queue, its workers, and how far the jobs are."""

    def __init__(
        self,
        broker: str,
        store: RedisServer,
        folder: Path,
        *,
        lease: str,
        retry_after: str,
        exchange: str = "topic",
    ) -> None:
        self.queue = f"jobs-{os.urandom(4).hex()}"
        self.app = make(broker, self.queue, exchange)
        self.log = folder / "workers.log"
        self.ledger: Any = store.client(db=1, decode_responses=True)
        self._environment = {
            "KILLS_BROKER": broker,
            "KILLS_STORE": store.url,
            "KILLS_QUEUE": self.queue,
            "KILLS_EXCHANGE": exchange,
            "KILLS_LEASE": lease,
            "KILLS_RETRY_AFTER": retry_after,
        }
        self.workers: list[Worker] = []
        self._names: list[str] = []
        self.kills = 0
        self.jobs = 0
        self._connection: Any = self.app.connection_for_read()
        self._channel: Any = self._connection.default_channel
        self._channel.queue_declare(f"{self.queue}-dead", durable=True, auto_delete=False)

    def start(self) -> None:
        """Start one more worker."""
        self._names.append(f"{os.urandom(4).hex()}@localhost")
        self.workers.append(self._worker(self._names[-1]))

    def send(self, job: str, *args: Any) -> int:
        """Enqueue a job about another order. Return the number of the order."""
        self.jobs += 1
        self.app.send_task(job, (self.jobs, *args), queue=self.queue)
        return self.jobs

    def kill(self, number: int) -> None:
        """Kill a worker with its children, and start another one in its place."""
        self.workers[number].kill()
        self.kills += 1
        self._names[number] = f"{os.urandom(4).hex()}@localhost"
        self.workers[number] = self._worker(self._names[number])

    def ready(self) -> list[int]:
        """Return the numbers of the workers that take jobs by now."""
        names = self.ledger.smembers("ready")
        return [number for number, name in enumerate(self._names) if name in names]

    def done(self) -> int:
        """Return how many jobs had their effect."""
        return len(set(self.ledger.hvals("effects")))

    def twice(self) -> int:
        """Return how many effects were one too many: under another key, or beside a live worker.

        A worker that is killed leaves one run, and only then another may begin.
        """
        other_keys: int = self.ledger.hlen("effects") - self.done()
        beside: int = self.ledger.llen("runs") - self.jobs - self.kills
        return other_keys + max(0, beside)

    def dead(self) -> int:
        """Return how many messages RabbitMQ has given up."""
        found = self._channel.queue_declare(f"{self.queue}-dead", passive=True)
        return int(found.message_count)

    def deaths(self) -> list[Any]:
        """Return why RabbitMQ has given messages up, and how often it had delivered each."""
        found = []
        while (message := self._channel.basic_get(f"{self.queue}-dead")) is not None:
            told = message.headers
            found.append([told.get("x-delivery-count"), told.get("x-death"), message.payload])
        return found

    def figures(self) -> dict[str, Any]:
        """Return what is known about the jobs, in numbers."""
        return {
            "jobs": self.jobs,
            "done": self.done(),
            "done twice": self.twice(),
            "dead letters": self.dead(),
            "kills": self.kills,
            "runs": self.ledger.llen("runs"),
            "runs to the end": sum(map(int, self.ledger.hvals("calls"))),
        }

    def told(self) -> str:
        """Return the end of what the workers have logged."""
        return self.log.read_text(errors="replace")[-6000:]

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers:
            worker.ask_to_stop()
        for worker in self.workers:
            worker.stop()
        self._connection.release()
        self.ledger.close()
        self.app.close()

    def _worker(self, name: str) -> Worker:
        words = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            MODULE,
            "worker",
            "--loglevel=INFO",
            f"--queues={self.queue}",
            "--concurrency=1",
            "--without-mingle",
            "--without-gossip",
            "-n",
            name,
        ]  # fmt: skip - it reads as the command line that it is
        return Worker(words, self._environment, self.log)


def kill_at_random(run: KillRun, *, every: float, dice: random.Random) -> None:
    """Kill a worker after so many seconds, on average, until every job is done or given up.

    Stop when nothing was done for twice as long as the longest lease: then a job is lost.
    """
    ended, give_up = 0, time.monotonic() + 2 * PATIENCE
    while (found := run.done() + run.dead()) < run.jobs and time.monotonic() < give_up:
        if found > ended:
            ended, give_up = found, time.monotonic() + 2 * PATIENCE
        until(run.ready, run.told)  # on a slow machine nobody would ever begin
        time.sleep(dice.uniform(0, 2 * every))
        run.kill(dice.choice(run.ready()))
        print(json.dumps(run.figures()), flush=True)  # noqa: T201 - pytest shows it after a failure


def main() -> int:
    """Run it, and print what came of it. Return 0 when every job was done once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--lease", action="append", help="may be given several times")
    parser.add_argument("--retry-after", default="5s", help="when a job in progress comes back")
    parser.add_argument("--every", type=float, default=5, help="seconds between kills, on average")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=float, default=1, help="seconds of work, on average")
    parser.add_argument("--exchange", choices=("topic", "direct"), default="topic")
    said = parser.parse_args()
    good = True
    for lease in said.lease or ["5min", "30s", "5s"]:
        figures = _measured(said, lease)
        print(json.dumps(figures), flush=True)  # noqa: T201 - what the command is for
        good = good and figures["done"] == said.jobs
        good = good and not (figures["done twice"] or figures["dead letters"])
    return 0 if good else 1


def _measured(said: argparse.Namespace, lease: str) -> dict[str, Any]:
    """Return the figures of a run with this lease, on servers of its own."""
    dice = random.Random()  # noqa: S311 - chance, not a secret
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("rabbitmq", "redis")]
        for folder in folders:
            folder.mkdir()
        broker, store = RabbitServer(folders[0]).start(), RedisServer(folders[1]).start()
        terms = {"lease": lease, "retry_after": said.retry_after, "exchange": said.exchange}
        run = KillRun(broker.url, store, Path(place), **terms)
        try:
            for _ in range(said.jobs):
                run.send("charge", dice.uniform(0, 2 * said.work))
            for _ in range(said.workers):
                run.start()
            kill_at_random(run, every=said.every, dice=dice)
            if run.dead():
                print(run.told(), run.deaths(), flush=True)  # noqa: T201 - why it has failed
            return {**terms, **run.figures(), "seconds": round(time.monotonic() - began)}
        finally:
            run.close()
            store.stop()
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
