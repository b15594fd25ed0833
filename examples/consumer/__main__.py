"""The consumer, until Ctrl-C: python -m examples.consumer."""

import asyncio

from examples.consumer.app import app

asyncio.run(app.run())
