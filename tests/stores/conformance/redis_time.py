"""A time for a Redis under test that the test moves.

The scripts read the server's clock. `MovedTime` puts another first line into them, which reads a
key instead, so that the model can stop at a microsecond. Nothing else of them changes. What Redis
removes by its own clock in reality, `tick` removes.
"""

from hashlib import sha1

from oncekey.stores.redis.commands import Script, held_set, record_of, scripts_for

HELD = held_set(b"idempotency:")
CLOCK = "the-clock-of-the-test"
FAR_AWAY = 2_208_988_800_000_000
"""The year 2040: Redis itself removes nothing that expires then."""

_REAL = "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n"


class MovedTime:
    """A clock in the server that stands still until somebody moves it."""

    def __init__(self, client, tag=""):
        """In a cluster the clock stands beside the records, where the tag puts them all."""
        self._client = client
        self._clock, self._records = f"{tag}{CLOCK}", f"{tag}idempotency:*"
        self._client.set(self._clock, FAR_AWAY)
        self._now = FAR_AWAY

    def __call__(self):
        return self._now

    def tick(self, microseconds):
        self._now = self._client.incrby(self._clock, microseconds)
        self._expire()

    def _expire(self):
        for name in self._client.scan_iter(self._records, count=1000):
            if _beside(name):
                continue
            expires = record_of(None, "", self._client.get(name)).expires
            moment = self._client.pttl(name)
            assert (moment == -1) == (expires == 0), "held ones alone live for ever"
            if expires and -(-expires // 1000) * 1000 <= self._now:
                self._client.delete(name)

    def check_held(self):
        """The set of held records has those that are held, and no others."""
        found = self._client.scan_iter(self._records, count=1000)
        names = [one for one in found if not _beside(one)]
        held = {name for name in names if self._client.getrange(name, 0, 5).endswith(b"\x04")}
        assert set(self._client.zrange(HELD, 0, -1)) == held

    def close(self):
        self._client.close()


def _beside(name):
    """Whether the key is no record, but the held set, the audit trail or the counts for charts."""
    return name.rpartition(b"idempotency:")[2].startswith(b"/")


def moved(facts, tag=""):
    """The scripts with the moved clock."""
    read = f"local now = tonumber(redis.call('GET', '{tag}{CLOCK}'))\n"
    made = {}
    prefix = None if tag else b"idempotency:"  # a cluster has no such set
    for verb, script in scripts_for(facts, prefix).items():
        assert script.text.count(_REAL) == 1
        text = script.text.replace(_REAL, read)
        made[verb] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest().encode())
    return made
