"""A record as the scripts of Redis would have stored it."""

from oncekey.core.record import FORMAT
from oncekey.stores.redis.commands import HEAD, MAGIC, STATUSES


def as_stored(record):
    texts = [
        text.encode()
        for text in (record.nonce, record.fingerprint or "", record.label, record.reference)
    ]
    error = record.error or b""
    head = HEAD.pack(
        MAGIC,
        FORMAT,
        STATUSES.index(record.status),
        record.uncertain,
        record.fingerprint is not None,
        record.result is not None,
        record.error is not None,
        0,
        record.attempt,
        record.created,
        record.token,
        record.started,
        record.updated,
        record.lease_end,
        record.finished,
        record.expires,
        record.revision,
        *map(len, (*texts, record.hand, error, record.noted)),
    )
    return b"".join((head, *texts, record.hand, error, record.noted, record.result or b""))
