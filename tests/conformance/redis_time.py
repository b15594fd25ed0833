"""Two ways to time for a Redis under test: its own, and one that a test moves.

The scripts read the server's clock. `MovedTime` puts another first line into them, which reads a
key instead, so that the model can stop at a microsecond. Nothing else of them changes. What Redis
removes by its own clock in reality, `tick` removes.
"""

import time
from hashlib import sha1

from msgspec.msgpack import decode

from oncekey.stores.redis_scripts import Script, scripts_for

CLOCK = "the-clock-of-the-test"
FAR_AWAY = 2_208_988_800_000_000
"""The year 2040: Redis itself removes nothing that expires then."""

_REAL = "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n"
_MOVED = f"local now = tonumber(redis.call('GET', '{CLOCK}'))\n"


class RealTime:
    """The server's time. It passes by itself, and a tick waits for it."""

    def __init__(self, server):
        self._client = server.client()

    def __call__(self):
        seconds, microseconds = self._client.time()
        return seconds * 1_000_000 + microseconds

    def wait(self, microseconds):
        end = self() + microseconds
        while (left := end - self()) > 0:
            time.sleep(left / 1e6)

    def close(self):
        self._client.close()


class MovedTime:
    """A clock in the server that stands still until somebody moves it."""

    def __init__(self, server):
        self._client = server.client()
        self._client.set(CLOCK, FAR_AWAY)
        self._now = FAR_AWAY

    def __call__(self):
        return self._now

    def tick(self, microseconds):
        self._now = self._client.incrby(CLOCK, microseconds)
        self._expire()

    def _expire(self):
        for name in self._client.scan_iter("idempotency:*", count=1000):
            packed = decode(self._client.hget(name, "m"))
            moment = self._client.pttl(name)
            assert (moment == -1) == (packed[11] is False), "held ones alone live for ever"
            if packed[11] is not False and -(-(packed[6] + packed[11]) // 1000) * 1000 <= self._now:
                self._client.delete(name)

    def close(self):
        self._client.close()


def moved(facts):
    """The scripts with the moved clock."""
    made = {}
    for verb, script in scripts_for(facts).items():
        assert script.text.count(_REAL) == 1
        text = script.text.replace(_REAL, _MOVED)
        made[verb] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    return made
