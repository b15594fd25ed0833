"""FastStream: a message that is delivered twice is processed once, and its reply is sent again.

    broker = NatsBroker(middlewares=[InboxMiddleware(inbox)])   # every handler of the broker

    @broker.subscriber("orders", stream="ORDERS", durable="billing")
    @once_message(inbox)                                        # or this one alone
    async def bill(order: Order) -> Receipt: ...

A duplicate does not run the handler: it hands back the first result, which FastStream publishes
as it did, or would have done, the first time.
"""

from oncekey.extras import needing

with needing("faststream", __name__):
    from oncekey.messages.faststream_handler import once_message
    from oncekey.messages.faststream_middleware import (
        CurrentConnection,
        CurrentDelivery,
        InboxMiddleware,
    )

__all__ = ["CurrentConnection", "CurrentDelivery", "InboxMiddleware", "once_message"]
