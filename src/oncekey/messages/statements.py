"""The SQL statements of the inbox, and the differences between databases."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.policy import SECOND

# What differs between databases: times, parameters, and the parsing of text.
#
# Statements are written once for PostgreSQL and SQLite, with parameters as `:name`. A duration is a
# number of seconds that PostgreSQL adds to its own clock. SQLite has no server and no clock that
# counts microseconds, so it is given the time by the machine, which all users of the file share.
#
# MySQL and MariaDB have statements of their own, in `statements_mysql.py`. Texts and bytes go there
# as hexadecimal digits, which mean the same in every character set and under every `sql_mode`.


Values = dict[str, Any]
Given = Values | Callable[[], Values]
"""Values, or a function that returns them as of now, called when the statement can be run."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORM: Final = "%Y-%m-%d %H:%M:%S.%f"


class Dialect(Struct, frozen=True, kw_only=True):
    """The SQL expressions of one kind of database."""

    name: Literal["postgres", "sqlite", "mysql"]
    moment: str
    """The current time, read once for a statement."""
    micros: str
    """A time as microseconds."""
    later: str
    """The time that is a duration after now."""
    earlier: str
    """The time that was a duration before now."""
    greatest: str
    find: str
    """The position of a text in another."""
    number: str
    octets: str
    skip_locked: str
    among: str
    """The start of a condition that opens two brackets around a SELECT of the rows meant."""
    limited: str
    """The expression that limits how long the statement waits for a locked row.

    On PostgreSQL its commit waits for synchronous standbys, whatever the session has been told.
    """
    counts: bool = False
    """Whether a rolled back attempt can be counted while the transaction around it is open."""

    def after(self, name: str) -> str:
        """Return the time that is the duration `:name` after now."""
        return self.later.format(name=name)

    def alone(self, name: str) -> str:
        """Return the same for a statement that reads the clock each time, without `t`."""
        return self.after(name).replace("t.now", self.moment)

    def values(self, durations: Mapping[str, int], **values: object) -> Values:
        """Return the parameters of a statement. Durations are microseconds."""
        if self.name == "postgres":
            for name, took in durations.items():
                values[name] = took / SECOND
            return values
        if self.name == "mysql":
            return {**{name: as_hex(value) for name, value in values.items()}, **durations}
        now = time.time_ns() // 1000
        moments = {name: as_text(now + took) for name, took in durations.items()}
        ago = {f"{name}_ago": as_text(now - took) for name, took in durations.items()}
        return {**values, **moments, **ago, "now": as_text(now), "now_us": now}

    def steps(self, statement: str) -> tuple[str, ...]:
        """Return what the driver sends. The last step counts, or the first that finds rows."""
        return _steps(statement) if self.name == "mysql" else (statement,)

    def rows(self, changed: int) -> list[Any]:
        """Return the rows of a statement without RETURNING: one for each that it has changed."""
        return [()] * max(0, changed)


@cache
def _steps(statement: str) -> tuple[str, ...]:
    return tuple(statement.split(";\n"))


def as_hex(value: object) -> object:
    """Return a text or bytes as hexadecimal digits, and other values as they are."""
    if isinstance(value, str):
        value = value.encode()
    return value.hex() if isinstance(value, bytes) else value


def as_text(moment: int) -> str:
    """Return a time in microseconds as SQLite keeps it."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime(_FORM)


def as_micros(moment: object) -> int:
    """Return a time from a result row as microseconds, 0 for none."""
    if not moment:
        return 0
    if isinstance(moment, str):
        told = datetime.fromisoformat(moment).replace(tzinfo=UTC) - _EPOCH
        return told // timedelta(microseconds=1)
    return int(moment)  # type: ignore[call-overload, no-any-return]  # a number of the driver


POSTGRES: Final = Dialect(
    name="postgres",
    moment="clock_timestamp()",
    micros="CAST(extract(epoch FROM {}) * 1000000 AS bigint)",
    later="t.now + make_interval(secs => CAST(:{name} AS double precision))",
    earlier="clock_timestamp() - make_interval(secs => CAST(:{name} AS double precision))",
    greatest="GREATEST",
    find="strpos",
    number="bigint",
    octets="bytea",
    skip_locked="FOR UPDATE SKIP LOCKED",
    among="processed_messages.ctid = ANY (ARRAY(SELECT ctid",
    limited="set_config('lock_timeout', '1s', true) || set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' "
    "ELSE 'on' END, true)",
    counts=True,
)
SQLITE: Final = Dialect(
    name="sqlite",
    moment=":now",
    micros="{}",
    later=":{name}",
    earlier=":{name}_ago",
    greatest="max",
    find="instr",
    number="integer",
    octets="blob",
    skip_locked="",
    among="(processed_messages.rowid IN (SELECT rowid",
    limited="1",
)
# The clock of a transaction of the user: its session may be in any time zone. It stands still while
# a statement waits, so that no statement may wait and then read it.
MYSQL: Final = Dialect(
    name="mysql",
    moment="UTC_TIMESTAMP(6)",
    micros="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {})",
    later="t.now + INTERVAL :{name} MICROSECOND",
    earlier="UTC_TIMESTAMP(6) - INTERVAL :{name} MICROSECOND",
    greatest="GREATEST",
    find="",
    number="SIGNED",
    octets="BINARY",
    skip_locked="FOR UPDATE SKIP LOCKED",
    among="",
    limited="",
)


# The statements of the inbox, one text for PostgreSQL and SQLite.
#
# The claim is one INSERT that takes over what may be taken over and returns no row otherwise. Every
# later write checks token and nonce. Each statement names the identity of the database with our
# table, so that a connection to another database or schema writes nothing.


SAVEPOINT: Final = "SAVEPOINT oncekey_inbox"
RELEASE: Final = "RELEASE SAVEPOINT oncekey_inbox"
ROLL_BACK: Final = "ROLLBACK TO SAVEPOINT oncekey_inbox"

SAVEPOINT_LAST: Final = "SAVEPOINT oncekey_inbox_last"
ROLL_BACK_LAST: Final = "ROLLBACK TO SAVEPOINT oncekey_inbox_last"

LAPSED: Final = "it ended without an outcome, and its lease ran out"
"""The error of an attempt that ended without a result."""

_HERE: Final = "(SELECT identity FROM processed_messages_schema) = CAST(:identity AS {text})"
_PLACE: Final = "consumer = CAST(:consumer AS {text}) AND idempotency_key = CAST(:key AS {text})"
_OWNED: Final = "token = CAST(:token AS {number}) AND nonce = CAST(:nonce AS {text})"
_DIFFER: Final = (  # both known, of one version, and not the same
    "(m.fingerprint <> excluded.fingerprint AND "
    "substr(m.fingerprint, 1, {find}(m.fingerprint, ':')) = "
    "substr(excluded.fingerprint, 1, {find}(excluded.fingerprint, ':')))"
)
_FRESH: Final = (
    f"(m.expires_at <= excluded.started_at OR (m.status = 'failed' AND COALESCE({_DIFFER}, false)))"
)


class Statements(Struct, frozen=True, kw_only=True):
    """All statements on `processed_messages`."""

    claim_new: str
    """The short claim for a new message, on a connection with the statement prepared."""
    claim: str
    """The claim in the user's transaction, which waits for a locked row."""
    claim_many: str
    """The claims of a batch, not on SQLite."""
    claim_alone: str
    """The claim in its own transaction, which does not wait long."""
    read: str
    read_here: str
    """The same in the user's transaction: the row as committed last, not as of a snapshot."""
    read_many: str
    """The rows of a batch, not on SQLite."""
    complete: str
    complete_many: str
    """The completions of a batch, not on SQLite."""
    settle: str
    confirm: str
    """A write that changes nothing, so that its commit waits for the standbys of PostgreSQL."""
    release: str
    renew: str
    count: str
    forget: str
    purge: str
    due: str
    dead: str
    """The messages that have failed for good."""
    free: str
    """A message that has failed for good may be processed again."""


@cache
def statements(dialect: Dialect) -> Statements:
    """Return the statements for one kind of database."""
    if dialect.name == "mysql":
        from oncekey.messages.statements_mysql import MYSQL_STATEMENTS

        return MYSQL_STATEMENTS

    def said(text: str) -> str:
        return text.format(
            text="text",
            number=dialect.number,
            octets=dialect.octets,
            find=dialect.find,
            greatest=dialect.greatest,
            skip_locked=dialect.skip_locked,
            among=dialect.among,
            now=f"(SELECT {dialect.moment} AS now) AS t",
            limited=f"(SELECT {dialect.moment} AS now, {dialect.limited} AS limited) AS t",
            living_alone=dialect.alone("living"),
            lease_alone=dialect.alone("lease"),
            ttl_alone=dialect.alone("ttl"),
            some_alone=dialect.alone("some"),
            token_alone=dialect.micros.format(dialect.moment),
            lease=dialect.after("lease"),
            living=dialect.after("living"),
            ttl=dialect.after("ttl"),
            some=dialect.after("some"),
            ago=dialect.earlier.format(name="grace"),
            moment=dialect.moment,
            micros_now=dialect.micros.format("t.now"),
            token=":now_us" if dialect.name == "sqlite" else dialect.micros.format("t.now"),
            started=dialect.micros.format("started_at"),
            created=dialect.micros.format("created_at"),
            updated=dialect.micros.format("updated_at"),
            finished=dialect.micros.format("completed_at"),
            expires=dialect.micros.format("expires_at"),
            lease_end=dialect.micros.format("lease_end"),
        )

    return Statements(
        claim_new=said(_CLAIM_NEW),
        claim=said(_CLAIM.replace("{source}", "{now}")),
        claim_many=said(_CLAIM_MANY.replace("{source}", "{now}")),
        claim_alone=said(_CLAIM.replace("{source}", "{limited}")),
        read=said(_READ),
        read_here=said(_READ),
        read_many=said(_READ_MANY),
        complete=said(_COMPLETE),
        complete_many=said(_COMPLETE_MANY),
        settle=said(_SETTLE),
        confirm=said(_CONFIRM),
        release=said(_RELEASE),
        renew=said(_RENEW),
        count=said(_COUNT),
        forget=said(_FORGET),
        purge=said(_PURGE),
        due=said(_DUE),
        dead=said(_DEAD),
        free=said(_FREE),
    )


_CLAIM: Final = f"""
INSERT INTO processed_messages AS m (consumer, idempotency_key, message_id, message_type, status,
    started_at, expires_at, created_at, updated_at, token, nonce, attempt, lease_end, fingerprint)
SELECT CAST(:consumer AS {{text}}), CAST(:key AS {{text}}), CAST(:message_id AS {{text}}),
    CAST(:message_type AS {{text}}), 'processing', t.now, {{living}}, t.now, t.now, {{token}},
    CAST(:nonce AS {{text}}), 1, {{lease}}, CAST(:fingerprint AS {{text}})
FROM {{source}} WHERE {_HERE}
ON CONFLICT (consumer, idempotency_key) DO UPDATE SET
    message_id = excluded.message_id,
    message_type = excluded.message_type,
    status = 'processing',
    started_at = excluded.started_at,
    completed_at = NULL,
    expires_at = excluded.expires_at,
    created_at = CASE WHEN {_FRESH} THEN excluded.created_at ELSE m.created_at END,
    updated_at = excluded.updated_at,
    token = {{greatest}}(m.token + 1, excluded.token),
    nonce = excluded.nonce,
    attempt = CASE WHEN {_FRESH} THEN 1 ELSE m.attempt + 1 END,
    lease_end = excluded.lease_end,
    fingerprint = CASE WHEN {_FRESH} THEN excluded.fingerprint
        ELSE COALESCE(excluded.fingerprint, m.fingerprint) END,
    result = NULL,
    error = CASE WHEN {_FRESH} THEN NULL WHEN m.status = 'processing' THEN '{LAPSED}'
        ELSE m.error END,
    error_bytes = CASE WHEN {_FRESH} OR m.status = 'processing' THEN NULL ELSE m.error_bytes END,
    dead = false
WHERE m.expires_at <= excluded.started_at
    OR (m.nonce <> excluded.nonce AND (
        (m.status = 'failed' AND NOT m.dead)
        OR (m.status = 'processing' AND m.lease_end <= excluded.started_at
            AND NOT COALESCE({_DIFFER}, false))))
RETURNING token, attempt, {{started}}, {{created}}, error_bytes, fingerprint, error
"""  # noqa: S608 - only constants

# The same for a batch, which is one parameter of JSON: every driver can send that. Its rows are
# locked in the order of their keys, so that two batches wait for each other instead of failing.
_BATCH: Final = "json_to_recordset(CAST(:batch AS json)) AS b"
_CLAIM_MANY: Final = (
    _CLAIM.replace("CAST(:key AS {text})", "b.key")
    .replace("CAST(:message_id AS {text})", "b.message_id")
    .replace("CAST(:message_type AS {text})", "b.message_type")
    .replace("CAST(:nonce AS {text})", "b.nonce")
    .replace("CAST(:fingerprint AS {text})", "b.fingerprint")
    .replace(
        f"FROM {{source}} WHERE {_HERE}",
        f"FROM {{source}} CROSS JOIN {_BATCH} (key text, message_id text, message_type text, "
        f"nonce text, fingerprint text) WHERE {_HERE} ORDER BY b.key",
    )
    .replace("RETURNING token", "RETURNING m.idempotency_key, m.token")
)

# Most messages are new, and this is all it takes then: the server spends half the time on it.
_CLAIM_NEW: Final = """
INSERT INTO processed_messages (consumer, idempotency_key, message_id, message_type, status,
    started_at, expires_at, token, nonce, lease_end, fingerprint)
SELECT CAST(:consumer AS {text}), CAST(:key AS {text}), CAST(:message_id AS {text}),
    CAST(:message_type AS {text}), 'processing', {moment}, {living_alone}, {token_alone},
    CAST(:nonce AS {text}), {lease_alone}, CAST(:fingerprint AS {text})
FROM processed_messages_schema WHERE identity = CAST(:identity AS {text})
ON CONFLICT DO NOTHING
RETURNING token
"""

_READ: Final = f"""
SELECT s.identity, {{micros_now}}, status, dead, fingerprint, token, nonce, attempt, {{lease_end}},
    result, error_bytes, error, message_type, message_id, {{created}}, {{started}}, {{updated}},
    {{finished}}, {{expires}}
FROM processed_messages_schema AS s CROSS JOIN {{now}} LEFT JOIN processed_messages ON {_PLACE}
"""  # noqa: S608 - only constants

_READ_MANY: Final = (
    _READ.replace("SELECT s.identity", "SELECT b.key, s.identity")
    .replace(" fingerprint, token, nonce,", " m.fingerprint, m.token, m.nonce,")
    .replace("message_type, message_id,", "m.message_type, m.message_id,")
    .replace(
        "CROSS JOIN {now} LEFT JOIN processed_messages ON",
        f"""CROSS JOIN {{now}}
CROSS JOIN {_BATCH} (key text) LEFT JOIN processed_messages AS m ON""",
    )
    .replace("CAST(:key AS {text})", "b.key")
)

# A completion in the transaction of its claim keeps the expiry time that the claim has set, unless
# a hundredth of the ttl has passed: no index changes, and the row stays in its page.
_COMPLETE: Final = f"""
UPDATE processed_messages SET
    status = CAST(:status AS {{text}}),
    completed_at = {{moment}},
    updated_at = {{moment}},
    expires_at = CASE WHEN expires_at > {{some_alone}} AND expires_at <= {{ttl_alone}}
        THEN expires_at ELSE {{ttl_alone}} END,
    result = CAST(:result AS {{octets}}),
    error = CAST(:error AS {{text}}),
    error_bytes = CAST(:error_bytes AS {{octets}}),
    dead = (CAST(:status AS {{text}}) = 'failed')
WHERE {_PLACE} AND {_OWNED} AND status = 'processing' AND {_HERE}
RETURNING token
"""  # noqa: S608 - only constants

_COMPLETE_MANY: Final = f"""
UPDATE processed_messages AS m SET
    status = b.status,
    completed_at = {{moment}},
    updated_at = {{moment}},
    expires_at = CASE WHEN expires_at > {{some_alone}} AND expires_at <= {{ttl_alone}}
        THEN expires_at ELSE {{ttl_alone}} END,
    result = decode(b.result, 'hex'),
    error = b.error,
    error_bytes = decode(b.error_bytes, 'hex'),
    dead = (b.status = 'failed')
FROM {_BATCH} (key text, token bigint, nonce text, status text, result text, error text,
    error_bytes text)
WHERE consumer = CAST(:consumer AS {{text}}) AND idempotency_key = b.key AND m.token = b.token
    AND m.nonce = b.nonce AND m.status = 'processing' AND {_HERE}
RETURNING m.token
"""  # noqa: S608 - only constants

_SETTLE: Final = f"""
UPDATE processed_messages SET
    status = CAST(:status AS {{text}}),
    completed_at = t.now,
    updated_at = t.now,
    expires_at = {{ttl}},
    result = CAST(:result AS {{octets}}),
    error = CAST(:error AS {{text}}),
    error_bytes = CAST(:error_bytes AS {{octets}}),
    dead = (CAST(:status AS {{text}}) = 'failed')
FROM {{limited}}
WHERE {_PLACE} AND {_OWNED} AND status = 'processing' AND {_HERE}
RETURNING token
"""  # noqa: S608 - only constants

_CONFIRM: Final = f"""
UPDATE processed_messages SET updated_at = updated_at
FROM {{limited}}
WHERE {_PLACE} AND {_OWNED} AND {_HERE}
RETURNING token
"""  # noqa: S608 - only constants

_RELEASE: Final = f"""
UPDATE processed_messages SET
    status = 'failed',
    updated_at = t.now,
    lease_end = t.now,
    expires_at = {{ttl}},
    attempt = attempt - CAST(:unused AS {{number}}),
    error = COALESCE(CAST(:error AS {{text}}), error),
    error_bytes = COALESCE(CAST(:error_bytes AS {{octets}}), error_bytes)
FROM {{limited}}
WHERE {{among}} FROM processed_messages
    WHERE {_PLACE} AND {_OWNED} AND status = 'processing' {{skip_locked}}))
RETURNING token
"""  # noqa: S608 - only constants

_RENEW: Final = f"""
UPDATE processed_messages SET updated_at = t.now, lease_end = {{lease}}, expires_at = {{living}}
FROM {{limited}}
WHERE {{among}} FROM processed_messages
    WHERE {_PLACE} AND {_OWNED} AND status = 'processing' {{skip_locked}}))
RETURNING token
"""  # noqa: S608 - only constants

# An attempt that was rolled back has left no trace, so it is counted afterwards.
_COUNT: Final = f"""
INSERT INTO processed_messages AS m (consumer, idempotency_key, message_id, message_type, status,
    started_at, expires_at, created_at, updated_at, token, nonce, attempt, lease_end, fingerprint,
    error, error_bytes, dead, result)
SELECT CAST(:consumer AS {{text}}), CAST(:key AS {{text}}), CAST(:message_id AS {{text}}),
    CAST(:message_type AS {{text}}), 'failed', t.now, {{ttl}}, t.now, t.now, {{token}},
    CAST(:nonce AS {{text}}), CAST(:attempt AS {{number}}), t.now, CAST(:fingerprint AS {{text}}),
    CAST(:error AS {{text}}), CAST(:error_bytes AS {{octets}}), :dead,
    CAST(:letter AS {{octets}})
FROM {{limited}} WHERE {_HERE}
ON CONFLICT (consumer, idempotency_key) DO UPDATE SET
    status = 'failed',
    updated_at = excluded.updated_at,
    expires_at = excluded.expires_at,
    token = {{greatest}}(m.token + 1, excluded.token),
    nonce = excluded.nonce,
    attempt = excluded.attempt,
    lease_end = excluded.lease_end,
    error = excluded.error,
    error_bytes = excluded.error_bytes,
    dead = excluded.dead,
    result = excluded.result
WHERE m.status = 'failed' AND NOT m.dead
RETURNING token
"""  # noqa: S608 - only constants

_FORGET: Final = f"""
DELETE FROM processed_messages WHERE {_PLACE} AND token = CAST(:token AS {{number}})
RETURNING token
"""  # noqa: S608 - only constants

_PURGE: Final = """
DELETE FROM processed_messages WHERE {among} FROM processed_messages
    WHERE expires_at < {ago} ORDER BY expires_at LIMIT CAST(:limit AS {number}) {skip_locked}))
RETURNING 1
"""

_DUE: Final = "SELECT count(*) FROM processed_messages WHERE expires_at < {ago}"

# One that was freed and not processed since is still there, or nobody would know of it.
_DEAD: Final = """
SELECT consumer, idempotency_key, message_id, message_type, attempt, error, {created}, {updated},
    {expires}, token, result, dead
FROM processed_messages
WHERE status = 'failed' AND (dead OR result IS NOT NULL)
    AND (CAST(:consumer AS {text}) = '' OR consumer = CAST(:consumer AS {text}))
    AND (CAST(:key AS {text}) = '' OR idempotency_key = CAST(:key AS {text}))
ORDER BY updated_at DESC, consumer, idempotency_key LIMIT CAST(:limit AS {number})
"""

_FREE: Final = f"""
UPDATE processed_messages SET dead = false, attempt = 0, updated_at = t.now, lease_end = t.now
FROM {{limited}}
WHERE {_PLACE} AND status = 'failed' AND token = CAST(:token AS {{number}})
RETURNING token
"""  # noqa: S608 - only constants
