"""Celery: a task that is delivered twice runs once and hands back its first result.

    @app.task(acks_late=True)
    @once_task(once, key=by_fields("order_id"))
    def charge(order_id: str) -> str: ...

or `@app.task(base=OnceTask, once=once, once_key=by_fields("order_id"))`, which can deduplicate at
enqueue too. Both wrap the function that the worker calls, below Celery's own retrying.
"""

from oncekey.extras import needing

with needing("celery", __name__):
    from oncekey.jobs.celery_base import OnceTask
    from oncekey.jobs.celery_task import once_task

__all__ = ["OnceTask", "once_task"]
