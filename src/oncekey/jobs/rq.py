"""RQ: a job that is delivered twice runs once and hands back its first result.

    @once_job(once, key=by_fields("order_id"))
    def charge(order_id: str) -> str: ...

    queue.enqueue(charge, "A-17")

Jobs with one key are not even enqueued twice with `enqueue_once`.
"""

from oncekey.extras import needing

with needing("rq", __name__):
    from oncekey.jobs.rq_enqueue import enqueue_once
    from oncekey.jobs.rq_job import once_job

__all__ = ["enqueue_once", "once_job"]
