"""The scripts of events, and the names of the keys that they work on."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib import resources
from typing import Final, NamedTuple

from oncekey.events.settings import Settings

_PARTS: Final = {"publish": ("trim", "publish"), "tidy": ("trim", "tidy")}


class Script(NamedTuple):
    """The text, and the name by which a server that has seen it knows it."""

    text: str
    sha: str


@cache
def script(name: str, first: str = "") -> Script:
    """The script of this name after this first line; the same text for every server."""
    folder = resources.files("oncekey.events") / "lua"
    parts = _PARTS.get(name, (name,))
    text = first + "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def publish_script(settings: Settings) -> Script:
    """The script that appends an event. What a domain has set is not sent with every event."""
    facts = (
        f"'{settings.marker_seconds}'",
        *(settings.length, settings.slack, settings.hard_cap, settings.log_length),
    )
    names = "local lifetime, wanted, slack, most, kept"
    return script("publish", f"{names} = {', '.join(map(str, facts))}\n")


class Names:
    """The keys of a domain. Those of one shard share its hash tag, and so a node of a cluster."""

    def __init__(self, domain: str) -> None:
        self.shards = f"{{{domain}}}:shards"
        self._domain = domain

    def stream(self, shard: int) -> str:
        """The stream that routers read."""
        return f"{{{self._domain}:{shard}}}:events"

    def dead(self, shard: int) -> str:
        """The stream of entries that no router could handle."""
        return f"{{{self._domain}:{shard}}}:dead"

    def nudge(self, shard: int) -> str:
        """The channel on which readers are woken."""
        return f"{{{self._domain}:{shard}}}:nudge"

    def log(self, shard: int, job: str) -> str:
        """The events of a job, in order."""
        return f"{{{self._domain}:{shard}}}:log:{job}"

    def job(self, shard: int, job: str) -> str:
        """What is known of a job: epoch, newest offset, markers."""
        return f"{{{self._domain}:{shard}}}:job:{job}"

    def state(self, shard: int, job: str) -> str:
        """The event of a job with the greatest seq."""
        return f"{{{self._domain}:{shard}}}:state:{job}"
