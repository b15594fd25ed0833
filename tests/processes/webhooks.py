"""The receiver of webhooks, which processes an event when it may: `go on` is beside its file."""

import os

from starlette.applications import Starlette

from examples.webhooks.app import Receiver, make_app
from oncekey import Once
from tests.patience import until_async

GO_ON = "go on"


class Waiting(Receiver):
    async def process(self, name: str) -> None:
        await until_async((self._file.parent / GO_ON).exists)
        await super().process(name)


def app() -> Starlette:
    """Make the application as the example's own factory does, with a receiver that waits."""
    return make_app(Once(), Waiting(os.environ["WEBHOOKS_FILE"]))
