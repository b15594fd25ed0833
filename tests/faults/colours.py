"""One way to make calls in either colour, so that a test of trouble is written once."""

import asyncio


class Blocking:
    """Calls as code that blocks makes them."""

    def __init__(self, once):
        self.once = once

    def run(self, key, function, **options):
        return self.once.options(**options).run(key, function)

    def check(self, key):
        return self.once.check(key, "1h")

    def close(self):
        self.once.close()


class Awaiting(Blocking):
    """The same calls on an event loop; the function itself may block, where the loop is its own."""

    def __init__(self, once):
        super().__init__(once)
        self._runner = asyncio.Runner()

    def run(self, key, function, **options):
        async def work():
            await asyncio.sleep(0)
            return function()

        return self._runner.run(self.once.options(**options).run_async(key, work))

    def check(self, key):
        return self._runner.run(self.once.check_async(key, "1h"))

    def close(self):
        self._runner.run(self.once.aclose())
        self._runner.close()
        self.once.close()


COLOURS = (Blocking, Awaiting)
