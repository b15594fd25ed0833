"""Dramatiq: a message that is delivered twice runs once and hands back its first result.

    broker.add_middleware(OnceMiddleware(once))

    @dramatiq.actor(once_key=by_fields("order_id"), store_results=True)
    def charge(order_id: str) -> str: ...

Actors ask for it: `once=True` takes the key of the middleware, `once_key` another one. Messages
with one key are not even enqueued twice with `enqueue_once`.
"""

from oncekey.extras import needing

with needing("dramatiq", __name__):
    from oncekey.jobs.dramatiq_enqueue import enqueue_once
    from oncekey.jobs.dramatiq_middleware import OnceMiddleware
    from oncekey.jobs.dramatiq_putting import PutBack

__all__ = ["OnceMiddleware", "PutBack", "enqueue_once"]
