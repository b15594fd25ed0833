"""A router of events in a process of its own, to be killed and paused."""

import signal
from typing import Any

from oncekey.events import Router

DOMAIN = "matrix"


def route(facts: dict[str, Any]) -> None:
    """Until SIGTERM, and then to the end of what it has in hand."""
    router = Router(facts["url"], domain=DOMAIN, claim_after=facts["claim_after"])
    signal.signal(signal.SIGTERM, lambda *_: router.stop())
    router.run()
    router.close()
