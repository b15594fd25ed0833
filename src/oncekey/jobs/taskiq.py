"""Taskiq: a task that is delivered twice runs once and hands back its first result.

    @broker.task
    @once_task(once, key=by_fields("order_id"))
    async def charge(order_id: str) -> str: ...

    await charge.kiq("A-17")                                        # protected when it runs
    await enqueue_once(charge, key=by_fields("order_id")).kiq("A-17")  # and when it is sent

There is nothing to add to the broker: Taskiq hands the message to the task as a dependency.
`OnceMiddleware` is for tasks that are deduplicated when they are sent, and not protected.
"""

from oncekey.extras import needing

with needing("taskiq", __name__):
    from oncekey.jobs.taskiq_enqueue import Enqueuing, enqueue_once
    from oncekey.jobs.taskiq_free import OnceMiddleware
    from oncekey.jobs.taskiq_task import once_task

__all__ = ["Enqueuing", "OnceMiddleware", "enqueue_once", "once_task"]
