"""Protected functions and methods that write down what they do. Frameworks import them."""

from __future__ import annotations

import asyncio

from oncekey import Once

once = Once("memory://", observers=())
ran: list[str] = []


@once("charge:{order}")
def charge(order: int) -> str:
    """Charge the card."""
    ran.append("charge")
    return f"{order} is paid"


@once("send:{order}")
async def send(order: int) -> str:
    """Send the parcel."""
    await asyncio.sleep(0)
    ran.append("send")
    return f"{order} is sent"


class Clerk:
    """Whoever sells and delivers."""

    @once("sell:{order}")
    def sell(self, order: int) -> str:
        """Sell it."""
        ran.append("sell")
        return f"{order} is sold"

    @once("deliver:{order}")
    async def deliver(self, order: int) -> str:
        """Deliver it."""
        await asyncio.sleep(0)
        ran.append("deliver")
        return f"{order} is delivered"


clerk = Clerk()
EVERY = (charge, send, clerk.sell, clerk.deliver)
