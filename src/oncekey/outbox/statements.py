"""The SQL statements of the outbox, one text for each database."""

from __future__ import annotations

from functools import cache
from typing import Final

from msgspec import Struct

from oncekey.messages.schema import Schema
from oncekey.messages.statements import Dialect
from oncekey.outbox import statements_mysql as mysql

OUTBOX_SCHEMA: Final = Schema(
    table="outbox_messages",
    owner="outbox",
    package="oncekey.outbox",
    lock=7886477261459485031,
)


class OutboxStatements(Struct, frozen=True, kw_only=True):
    """All statements on `outbox_messages`."""

    put: str
    """A message without a key."""
    put_prepared: str
    """The same for a driver that lets the server keep the plan, where that is quicker."""
    put_in_order: str
    """A message with a key, whose number is drawn when no open transaction has the key."""
    put_later: str
    """A message without a key and with a delay."""
    lease: str
    """Messages that may be sent now. Of each key only the first one that was not sent."""
    lease_past_dead: str
    """The same, but a dead message does not keep others back."""
    free: str = ""
    """Only MySQL looks first and takes then. Messages without a key that may be sent now."""
    heads: str = ""
    """Some keys, and the first unsent message of each."""
    heads_past_dead: str = ""
    listening: str
    """An idle relay wants to be told of each message for a while."""
    sent: str
    failed: str
    """Tries that failed, and messages that are given back."""
    purge: str
    figures: str
    waiting: str
    """What is not sent yet, the oldest first."""
    dead: str
    revive: str
    """A dead message is sent again."""
    edit: str
    """Another message takes its place, with an id of its own."""
    drop: str
    """A dead message is never sent, and keeps others back no more."""


@cache
def outbox_statements(dialect: Dialect) -> OutboxStatements:
    """Return the statements for one kind of database."""
    if dialect.name == "mysql":
        return _MYSQL
    sqlite = dialect.name == "sqlite"

    def said(text: str, *, first_of: str = _UNSENT) -> str:
        return text.format(
            text="text",
            number=dialect.number,
            octets=dialect.octets,
            moment=dialect.moment,
            # The clock at the start of the statement can be looked up in an index.
            now=":now" if sqlite else "statement_timestamp()",
            ago=dialect.earlier.format(name="keep").replace("clock_", "statement_"),
            after_alone=dialect.alone("after"),
            lease_alone=dialect.alone("lease"),
            wanted_alone=dialect.alone("wanted"),
            routed=_ROUTED_SQLITE if sqlite else _ROUTED_POSTGRES,
            batch=_BATCH_SQLITE if sqlite else _BATCH_POSTGRES,
            due="b.pause" if sqlite else "clock_timestamp() + make_interval(secs => b.pause)",
            true="1" if sqlite else "true",
            locked="" if sqlite else "FOR UPDATE SKIP LOCKED",
            locked_c="" if sqlite else "FOR UPDATE OF c SKIP LOCKED",
            first_of=first_of,
            one_in_haste="1" if sqlite else _ONE_IN_HASTE,
            any_of="number IN (" if sqlite else "number = ANY (ARRAY(",
            or_of=") OR number IN (" if sqlite else ") || ARRAY(",
            end_of=")" if sqlite else "))",
            created=dialect.micros.format("created_at"),
            died=dialect.micros.format("due_at"),
            oldest=dialect.micros.format(f"min({_SINCE})"),
            pending=_PENDING,
            micros_now=dialect.micros.format(dialect.moment),
        )

    return OutboxStatements(
        put=said(_PUT_SQLITE) if sqlite else _PUT_POSTGRES.format(more=""),
        put_prepared=said(_PUT_SQLITE) if sqlite else _PUT_PREPARED,
        put_in_order=said(_PUT_SQLITE) if sqlite else _PUT_POSTGRES.format(more=_KEY),
        put_later=said(_PUT_SQLITE) if sqlite else _PUT_POSTGRES.format(more=_AFTER),
        lease=said(_LEASE),
        lease_past_dead=said(_LEASE, first_of=f"o.status = 'pending' AND {_UNSENT}"),
        listening="" if sqlite else said(_LISTENING),
        sent=said(_SENT),
        failed=said(_FAILED),
        purge=said(_PURGE),
        figures=said(_FIGURES),
        waiting=said(_WAITING),
        dead=said(_DEAD),
        revive=said(_REVIVE),
        edit=said(_EDIT),
        drop=said(_DROP),
    )


_MYSQL: Final = OutboxStatements(
    put=mysql.PUT,
    put_prepared=mysql.PUT,
    put_in_order=mysql.PUT_IN_ORDER,
    put_later=mysql.PUT,
    lease=mysql.TAKE,
    lease_past_dead=mysql.TAKE,
    free=mysql.FREE,
    heads=mysql.HEADS,
    heads_past_dead=mysql.HEADS_PAST_DEAD,
    listening="",
    sent=mysql.SENT,
    failed=mysql.FAILED,
    purge=mysql.PURGE,
    figures=mysql.FIGURES,
    waiting=mysql.WAITING,
    dead=mysql.DEAD,
    revive=mysql.REVIVE,
    edit=mysql.EDIT,
    drop=mysql.DROP,
)

CHANNEL: Final = "oncekey_outbox"
"""The channel of PostgreSQL on which idle relays listen."""

_LISTENING: Final = """
UPDATE outbox_messages_schema SET listening_until = {wanted_alone} RETURNING version
"""

# SQLite has one writer at a time, so that numbers are in the order of commits anyway.
_PUT_SQLITE: Final = """
INSERT INTO outbox_messages (message_id, destination, message_key, message_type, attributes, body,
    created_at, due_at)
SELECT :message_id, :destination, :key, :message_type, :attributes, :body, {moment}, {after_alone}
FROM outbox_messages_schema WHERE identity = :identity
ON CONFLICT (message_id) DO NOTHING
RETURNING number
"""

# A function, because the server keeps its plan even for drivers that prepare nothing.
_PUT_POSTGRES: Final = """
SELECT 1 WHERE outbox_messages_put(
    CAST(:message_id AS text), CAST(:destination AS text), CAST(:message_type AS text),
    CAST(:attributes AS text), CAST(:body AS bytea), CAST(:identity AS text){more})
"""

# The same without the function around it, and without rows to be read: a fifth less for a put.
_PUT_PREPARED: Final = f"""
INSERT INTO outbox_messages (message_id, destination, message_type, attributes, body, created_at,
    due_at)
SELECT CAST(:message_id AS text), CAST(:destination AS text), CAST(:message_type AS text),
    CAST(:attributes AS text), CAST(:body AS bytea), clock_timestamp(), clock_timestamp()
FROM outbox_messages_schema
WHERE identity = CAST(:identity AS text)
    AND (listening_until <= statement_timestamp() OR pg_notify('{CHANNEL}', identity) IS NOT NULL)
ON CONFLICT (message_id) DO NOTHING
"""  # noqa: S608 - only constants

_KEY: Final = ", CAST(:key AS text)"
_AFTER: Final = ", put_after => CAST(:after AS double precision)"

_UNSENT: Final = "o.status <> 'sent' AND o.message_key IS NOT NULL"

_ROUTED_POSTGRES: Final = (
    "destination LIKE ANY (CAST(:routes AS text[])) "
    "AND NOT destination LIKE ANY (CAST(:resting AS text[]))"
)
_ROUTED_SQLITE: Final = (
    "EXISTS (SELECT 1 FROM json_each(:routes) AS r WHERE destination GLOB r.value) "
    "AND NOT EXISTS (SELECT 1 FROM json_each(:resting) AS r WHERE destination GLOB r.value)"
)

# The commit of a lease does not wait for the disk or a standby: what is lost with it is the same as
# after the end of a lease. The message is sent again, with its id, and the late mark is refused.
_ONE_IN_HASTE: Final = """(
    SELECT CASE WHEN set_config('synchronous_commit', 'off', true) = 'off' THEN 1 END)"""

# A lease is a time before which no other relay takes the message. Which relay has it is said by
# token and nonce, so that a relay that comes too late can mark nothing.
#
# Messages without a key are taken as they are due. Of the others the keys are walked, and only the
# first unsent message of each is looked at: a million messages behind one that cannot be sent cost
# nothing. The walk goes on behind the key where the last one ended, so that no key is left out.
#
# No message is skipped because its transaction was committed late: rows are looked for by what
# they are, not behind a number that was seen last.
_LEASE: Final = """
UPDATE outbox_messages SET
    due_at = {lease_alone},
    token = token + {one_in_haste},
    nonce = CAST(:nonce AS {text})
WHERE {any_of}
    SELECT number FROM outbox_messages
    WHERE status = 'pending' AND message_key IS NULL AND due_at <= {now} AND {routed}
    ORDER BY due_at LIMIT CAST(:limit AS {number}) {locked}
{or_of}
    WITH RECURSIVE keys (message_key) AS (
        SELECT (SELECT min(o.message_key) FROM outbox_messages AS o
            WHERE {first_of} AND o.message_key > CAST(:behind AS {text}))
        UNION ALL
        SELECT (SELECT min(o.message_key) FROM outbox_messages AS o
            WHERE {first_of} AND o.message_key > keys.message_key)
        FROM keys WHERE keys.message_key IS NOT NULL
    )
    SELECT c.number FROM keys JOIN outbox_messages AS c ON c.number = (
        SELECT min(o.number) FROM outbox_messages AS o
        WHERE {first_of} AND o.message_key = keys.message_key)
    WHERE c.status = 'pending' AND c.due_at <= {now} AND {routed}
    LIMIT CAST(:limit AS {number}) {locked_c}
{end_of}
RETURNING number, token, message_id, destination, message_key, message_type, attributes, body, tries
"""

_BATCH_POSTGRES: Final = (
    "json_to_recordset(CAST(:batch AS json)) AS b "
    "(n bigint, t bigint, pause double precision, outcome text, failures int, why text, "
    "doubt boolean)"
)
_BATCH_SQLITE: Final = (
    "(SELECT json_extract(value, '$.n') AS n, json_extract(value, '$.t') AS t, "
    "json_extract(value, '$.pause') AS pause, json_extract(value, '$.outcome') AS outcome, "
    "json_extract(value, '$.failures') AS failures, json_extract(value, '$.why') AS why, "
    "json_extract(value, '$.doubt') AS doubt FROM json_each(:batch)) AS b"
)
_OURS: Final = (
    "number = b.n AND token = b.t AND nonce = CAST(:nonce AS {text}) AND status = 'pending'"
)

_SENT: Final = f"""
UPDATE outbox_messages SET status = 'sent', sent_at = {{moment}}, error = NULL
FROM {{batch}}
WHERE {_OURS}
RETURNING number
"""  # noqa: S608 - only constants

_FAILED: Final = f"""
UPDATE outbox_messages SET
    status = b.outcome,
    due_at = {{due}},
    tries = b.failures,
    error = COALESCE(b.why, error),
    unknown = (unknown OR b.doubt)
FROM {{batch}}
WHERE {_OURS}
RETURNING number
"""  # noqa: S608 - only constants

_PURGE: Final = """
DELETE FROM outbox_messages WHERE {any_of}
    SELECT number FROM outbox_messages WHERE status = 'sent' AND sent_at < {ago}
    ORDER BY sent_at LIMIT CAST(:limit AS {number}) {locked}
{end_of}
RETURNING 1
"""

# A message that is put with a delay waits from when the delay is over.
_SINCE: Final = "CASE WHEN token = 0 THEN due_at ELSE created_at END"

_FIGURES: Final = """
SELECT count(*), {oldest}, {micros_now},
    (SELECT count(*) FROM outbox_messages WHERE status = 'dead'),
    (SELECT count(*) FROM outbox_messages WHERE status = 'sent')
FROM {pending}
"""

_WAITING: Final = """
SELECT message_id, destination, message_key, message_type, tries, error, unknown, {created}
FROM {pending}
ORDER BY created_at LIMIT CAST(:limit AS {number})
"""

# Each half has an index. One index for both would be one more for each message that is put.
_PENDING: Final = """(
    SELECT * FROM outbox_messages WHERE status = 'pending' AND message_key IS NULL
    UNION ALL
    SELECT * FROM outbox_messages
    WHERE status = 'pending' AND status <> 'sent' AND message_key IS NOT NULL
) AS pending"""

# A message that dies has no pause before it, so that its time is when it died.
_DEAD: Final = """
SELECT number, token, message_id, destination, message_key, message_type, attributes, body, tries,
    error, unknown, {created}, {died}
FROM outbox_messages WHERE status = 'dead' AND number > CAST(:behind AS {number})
    AND (CAST(:message_id AS {text}) = '' OR message_id = CAST(:message_id AS {text}))
ORDER BY number LIMIT CAST(:limit AS {number})
"""

_LETTER: Final = (
    "number = CAST(:number AS {number}) AND token = CAST(:token AS {number}) AND status = 'dead'"
)

_REVIVE: Final = f"""
UPDATE outbox_messages SET status = 'pending', tries = 0, due_at = {{moment}}
WHERE {_LETTER}
RETURNING number
"""  # noqa: S608 - only constants

_EDIT: Final = f"""
UPDATE outbox_messages SET
    message_id = CAST(:message_id AS {{text}}),
    destination = CAST(:destination AS {{text}}),
    message_type = CAST(:message_type AS {{text}}),
    attributes = CAST(:attributes AS {{text}}),
    body = CAST(:body AS {{octets}}),
    status = 'pending', tries = 0, error = NULL, unknown = (1 = 0), due_at = {{moment}}
WHERE {_LETTER}
RETURNING number
"""  # noqa: S608 - only constants

_DROP: Final = f"""
DELETE FROM outbox_messages WHERE {_LETTER}
RETURNING number
"""  # noqa: S608 - only constants
