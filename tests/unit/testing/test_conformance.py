"""What the conformance suite says of something that is no store."""

from oncekey.stores import MemoryStore
from oncekey.testing.conformance import missing


class HandsOn:
    """A store that gives its verbs to another, and lacks one."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        if name == "renew":
            raise AttributeError(name)
        return getattr(self._store, name)


def test_it_names_the_verbs_that_are_missing():
    assert missing(MemoryStore(), "close") == []
    assert missing(MemoryStore(), "aclose") == ["aclose"]
    assert missing(HandsOn(MemoryStore()), "close") == ["renew"]
