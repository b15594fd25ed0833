"""What is protected in every measurement: a small function with a key, arguments and a result."""

from __future__ import annotations

from itertools import count

from oncekey import Once
from oncekey.functions import AsyncProtected, Protected

_orders = count()


def new_order() -> str:
    """A name that no call in this process has used yet."""
    return f"order-{next(_orders):08}"


def receipt(order: str, amount: int) -> str:
    return f"receipt of {order} over {amount}"


async def receipt_async(order: str, amount: int) -> str:
    return f"receipt of {order} over {amount}"


def protect(once: Once) -> Protected[[str, int], str]:
    """The function as a user writes it, with every setting at its default."""
    return once("charge:{order}", scope="bench")(receipt)


def protect_async(once: Once) -> AsyncProtected[[str, int], str]:
    """The same for coroutines."""
    return once("charge:{order}", scope="bench")(receipt_async)
