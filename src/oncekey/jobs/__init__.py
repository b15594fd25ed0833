"""Jobs: run a redelivered job once and return its first result.

`handler` wraps any function that a queue calls with a job. The adapters are in
`oncekey.jobs.celery`, `.dramatiq`, `.taskiq` and `.rq`; import them by name.
"""

from oncekey.jobs.enqueue import Enqueued, enqueue_once, enqueue_once_async
from oncekey.jobs.job import Job, by_entity, by_fields, by_payload, by_task_id
from oncekey.jobs.protect import handler

__all__ = [
    "Enqueued",
    "Job",
    "by_entity",
    "by_fields",
    "by_payload",
    "by_task_id",
    "enqueue_once",
    "enqueue_once_async",
    "handler",
]
