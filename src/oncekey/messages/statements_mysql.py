"""The SQL statements of the inbox on MySQL and MariaDB.

A claim takes the row first, with an INSERT that waits for whoever has it, and then reads it with a
lock: what a transaction of the user reads without one is as old as its snapshot. A claim of several
steps ends with the first that finds a row. No step relies on the order of assignments, on which
`sql_mode` has a say, and none has a literal that is empty, which it may take for NULL.

Statements on connections of the inbox itself read the clock with SYSDATE, which goes on while they
wait for a row. Their time zone is UTC. That of the user's sessions may be any.
"""

from __future__ import annotations

from typing import Final

from oncekey.messages.statements import LAPSED, Statements

_OWN: Final = "SYSDATE(6)"
_THEIRS: Final = "UTC_TIMESTAMP(6)"

_SEPARATOR: Final = ";\n"
"""What stands between two steps."""


def _micros(moment: str) -> str:
    return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {moment})"


def _text(name: str) -> str:
    return f"CONVERT(UNHEX(:{name}) USING utf8mb4)"


_TABLE: Final = "processed_messages"
_PLACE: Final = "m.consumer = UNHEX(:consumer) AND m.idempotency_key = UNHEX(:key)"
_OWNED: Final = "m.token = :token AND m.nonce = UNHEX(:nonce)"
_SCHEMA: Final = "processed_messages_schema"
_HERE: Final = f"(SELECT identity FROM {_SCHEMA}) = UNHEX(:identity)"

_COLUMNS: Final = """
    consumer, idempotency_key, message_id, message_type, status, started_at, expires_at,
    created_at, updated_at, token, nonce, attempt, lease_end, fingerprint"""

# Of a batch each message is an object of one parameter of JSON.
_BATCH: Final = """JSON_TABLE(CONVERT(UNHEX(:batch) USING utf8mb4), '$[*]' COLUMNS (
    place FOR ORDINALITY,
    k VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.key',
    message_id VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.message_id',
    message_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.message_type',
    token BIGINT PATH '$.token',
    nonce VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.nonce',
    fingerprint VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.fingerprint',
    status VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.status',
    result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.result',
    error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.error',
    error_bytes LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.error_bytes'
)) AS b"""
# The rows of a batch are looked up one by one: another plan would lock the whole table.
_LOOKED_UP: Final = f"{_BATCH} STRAIGHT_JOIN {_TABLE} AS m FORCE INDEX (PRIMARY)"
_PLACE_MANY: Final = "m.consumer = UNHEX(:consumer) AND m.idempotency_key = CAST(b.k AS BINARY)"
_NONCE_MANY: Final = "m.nonce = CAST(b.nonce AS BINARY)"

# It locks the row of another claim, or waits until whoever has it gives it up, and changes nothing.
_INSERT: Final = f"""INSERT INTO {_TABLE} ({_COLUMNS})
SELECT UNHEX(:consumer), UNHEX(:key), {_text("message_id")}, {_text("message_type")}, 'processing',
    t.now, t.now + INTERVAL :living MICROSECOND, t.now, t.now, {_micros("t.now")}, UNHEX(:nonce), 1,
    t.now + INTERVAL :lease MICROSECOND, UNHEX(:fingerprint)
FROM {_SCHEMA} AS s CROSS JOIN (SELECT {{moment}} AS now) AS t WHERE s.identity = UNHEX(:identity)
ON DUPLICATE KEY UPDATE token = {_TABLE}.token"""

_DIFFER: Final = (  # both known, of one version, and not the same
    "COALESCE(m.fingerprint <> {fingerprint} AND SUBSTRING_INDEX(m.fingerprint, ':', 1) = "
    "SUBSTRING_INDEX({fingerprint}, ':', 1), FALSE)"
)
_FRESH: Final = f"(m.expires_at <= {{now}} OR m.status = 'failed' AND {_DIFFER})"

# What an assignment reads is assigned after it, so that it is the same whether assignments are made
# one after the other or at once.
_TAKE_OVER: Final = f"""UPDATE {{source}} SET
    m.message_id = {{message_id}},
    m.message_type = {{message_type}},
    m.started_at = {{now}},
    m.completed_at = NULL,
    m.created_at = IF({_FRESH}, {{now}}, m.created_at),
    m.updated_at = {{now}},
    m.token = GREATEST(m.token + 1, {{micros_now}}),
    m.nonce = {{nonce}},
    m.attempt = IF({_FRESH}, 1, m.attempt + 1),
    m.error_bytes = IF({_FRESH} OR m.status = 'processing', NULL, m.error_bytes),
    m.error = IF({_FRESH}, NULL, IF(m.status = 'processing', '{LAPSED}', m.error)),
    m.fingerprint = IF({_FRESH}, {{fingerprint}}, COALESCE({{fingerprint}}, m.fingerprint)),
    m.result = NULL,
    m.dead = FALSE,
    m.lease_end = {{now}} + INTERVAL :lease MICROSECOND,
    m.expires_at = {{now}} + INTERVAL :living MICROSECOND,
    m.status = 'processing'
WHERE {{place}} AND (m.expires_at <= {{now}}
    OR m.nonce <> {{nonce}} AND (m.status = 'failed' AND NOT m.dead
        OR m.status = 'processing' AND m.lease_end <= {{now}} AND NOT {_DIFFER}))"""

_GRANTED: Final = (
    f"m.token, m.attempt, {_micros('m.started_at')}, {_micros('m.created_at')}, m.error_bytes, "
    f"CAST(m.fingerprint AS BINARY), CAST(m.error AS BINARY)"
)
_MINE: Final = (
    f"SELECT {_GRANTED} FROM {_TABLE} AS m "
    f"WHERE {_PLACE} AND m.nonce = UNHEX(:nonce) AND m.status = 'processing' FOR UPDATE"
)


def _claim(moment: str) -> str:
    takes = _TAKE_OVER.format(
        source=f"{_TABLE} AS m",
        now=moment,
        micros_now=_micros(moment),
        place=_PLACE,
        message_id=_text("message_id"),
        message_type=_text("message_type"),
        nonce="UNHEX(:nonce)",
        fingerprint="UNHEX(:fingerprint)",
    )
    return _SEPARATOR.join((_INSERT.format(moment=moment), _MINE, takes, _MINE))


_CLAIM_MANY: Final = _SEPARATOR.join(
    (
        f"""INSERT INTO {_TABLE} ({_COLUMNS})
SELECT UNHEX(:consumer), CAST(b.k AS BINARY), b.message_id, b.message_type, 'processing',
    t.now, t.now + INTERVAL :living MICROSECOND, t.now, t.now, {_micros("t.now")},
    CAST(b.nonce AS BINARY), 1, t.now + INTERVAL :lease MICROSECOND, CAST(b.fingerprint AS BINARY)
FROM {_SCHEMA} AS s CROSS JOIN (SELECT {_THEIRS} AS now) AS t CROSS JOIN {_BATCH}
WHERE s.identity = UNHEX(:identity) ORDER BY b.place
ON DUPLICATE KEY UPDATE token = {_TABLE}.token""",
        _TAKE_OVER.format(
            source=_LOOKED_UP,
            now=_THEIRS,
            micros_now=_micros(_THEIRS),
            place=_PLACE_MANY,
            message_id="b.message_id",
            message_type="b.message_type",
            nonce="CAST(b.nonce AS BINARY)",
            fingerprint="CAST(b.fingerprint AS BINARY)",
        ),
        (
            f"SELECT m.idempotency_key, {_GRANTED} FROM {_LOOKED_UP} "
            f"ON {_PLACE_MANY} AND {_NONCE_MANY} AND m.status = 'processing' "
            f"FOR UPDATE"
        ),
    )
)

_FOUND: Final = ", ".join(
    (
        "CAST(m.status AS BINARY), m.dead, CAST(m.fingerprint AS BINARY), m.token",
        f"CAST(m.nonce AS BINARY), m.attempt, {_micros('m.lease_end')}, m.result, m.error_bytes",
        "CAST(m.error AS BINARY), CAST(m.message_type AS BINARY), CAST(m.message_id AS BINARY)",
        *(
            _micros(f"m.{name}")
            for name in ("created_at", "started_at", "updated_at", "completed_at", "expires_at")
        ),
    )
)
_READ: Final = (
    f"SELECT (SELECT identity FROM {_SCHEMA}), {_micros(_OWN)}, {_FOUND} "
    f"FROM (SELECT 1 AS one) AS o LEFT JOIN {_TABLE} AS m ON {_PLACE}"
)
_READ_HERE: Final = (
    f"SELECT (SELECT identity FROM {_SCHEMA} LOCK IN SHARE MODE), {_micros(_THEIRS)}, {_FOUND} "
    f"FROM (SELECT 1 AS one) AS o LEFT JOIN {_TABLE} AS m ON {_PLACE} FOR UPDATE"
)
_READ_MANY: Final = (
    f"SELECT CAST(b.k AS BINARY), (SELECT identity FROM {_SCHEMA} LOCK IN SHARE MODE), "
    f"{_micros(_THEIRS)}, {_FOUND} "
    f"FROM {_BATCH} LEFT JOIN {_TABLE} AS m ON {_PLACE_MANY} FOR UPDATE"
)


def _ends(moment: str, expires: str) -> str:
    return f"""
    m.completed_at = {moment},
    m.updated_at = {moment},
    m.expires_at = {expires},
    m.result = UNHEX(:result),
    m.error = {_text("error")},
    m.error_bytes = UNHEX(:error_bytes),
    m.dead = (UNHEX(:status) = 'failed'),
    m.status = {_text("status")}"""


# The expiry time that the claim has set is kept, unless a hundredth of the ttl has passed since.
_KEPT: Final = (
    f"IF(m.expires_at > {_THEIRS} + INTERVAL :some MICROSECOND "
    f"AND m.expires_at <= {_THEIRS} + INTERVAL :ttl MICROSECOND, "
    f"m.expires_at, {_THEIRS} + INTERVAL :ttl MICROSECOND)"
)
_COMPLETE: Final = (
    f"UPDATE {_TABLE} AS m SET {_ends(_THEIRS, _KEPT)}\n"
    f"WHERE {_PLACE} AND {_OWNED} AND m.status = 'processing' AND {_HERE}"
)
_COMPLETE_MANY: Final = f"""UPDATE {_LOOKED_UP}
    ON {_PLACE_MANY} AND m.token = b.token AND {_NONCE_MANY} SET
    m.completed_at = {_THEIRS},
    m.updated_at = {_THEIRS},
    m.expires_at = {_KEPT},
    m.result = UNHEX(b.result),
    m.error = b.error,
    m.error_bytes = UNHEX(b.error_bytes),
    m.dead = (b.status = 'failed'),
    m.status = b.status
WHERE m.status = 'processing' AND {_HERE}"""
_SETTLE: Final = (
    f"UPDATE {_TABLE} AS m SET {_ends(_OWN, f'{_OWN} + INTERVAL :ttl MICROSECOND')}\n"
    f"WHERE {_PLACE} AND {_OWNED} AND m.status = 'processing' AND {_HERE}"
)

# InnoDB writes nothing for a row that stays as it was, and such a commit would wait for no replica.
_CONFIRM: Final = (
    f"UPDATE {_TABLE} AS m SET m.again = m.again + 1 WHERE {_PLACE} AND {_OWNED} AND {_HERE}"
)

# A row that a transaction of the user has locked is left alone.
_FREE_ROW: Final = (
    f"(SELECT m.consumer, m.idempotency_key FROM {_TABLE} AS m "
    f"WHERE {_PLACE} AND {_OWNED} AND m.status = 'processing' LIMIT 1 FOR UPDATE SKIP LOCKED) AS f"
)
_RELEASE: Final = f"""UPDATE {_TABLE} AS m JOIN {_FREE_ROW} USING (consumer, idempotency_key) SET
    m.updated_at = {_OWN},
    m.lease_end = {_OWN},
    m.expires_at = {_OWN} + INTERVAL :ttl MICROSECOND,
    m.attempt = m.attempt - :unused,
    m.error = COALESCE({_text("error")}, m.error),
    m.error_bytes = COALESCE(UNHEX(:error_bytes), m.error_bytes),
    m.status = 'failed'"""
_RENEW: Final = f"""UPDATE {_TABLE} AS m JOIN {_FREE_ROW} USING (consumer, idempotency_key) SET
    m.again = m.again + 1,
    m.updated_at = {_OWN},
    m.lease_end = {_OWN} + INTERVAL :lease MICROSECOND,
    m.expires_at = {_OWN} + INTERVAL :living MICROSECOND"""

_FORGET: Final = f"DELETE m FROM {_TABLE} AS m WHERE {_PLACE} AND m.token = :token"

# Not SYSDATE, which no index can be searched with.
_AGO: Final = f"{_THEIRS} - INTERVAL :grace MICROSECOND"
# SKIP LOCKED counts in a SELECT of its own only, so that the DELETE is given what it has found.
_PURGE: Final = _SEPARATOR.join(
    (
        (
            f"SELECT HEX(consumer), HEX(idempotency_key) FROM {_TABLE} WHERE expires_at < {_AGO} "
            "ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED"
        ),
        f"""DELETE m FROM JSON_TABLE(CONVERT(UNHEX(:found) USING utf8mb4), '$[*]' COLUMNS (
    c VARCHAR(2040) CHARACTER SET utf8mb4 PATH '$[0]',
    k VARCHAR(2048) CHARACTER SET utf8mb4 PATH '$[1]'
)) AS b STRAIGHT_JOIN {_TABLE} AS m FORCE INDEX (PRIMARY) ON m.consumer = UNHEX(b.c)
    AND m.idempotency_key = UNHEX(b.k)""",
    )
)
_DUE: Final = f"SELECT count(*) FROM {_TABLE} WHERE expires_at < {_AGO}"

# One that was freed and not processed since is still there, or nobody would know of it.
_DEAD: Final = f"""SELECT CAST(m.consumer AS BINARY), CAST(m.idempotency_key AS BINARY),
    CAST(m.message_id AS BINARY), CAST(m.message_type AS BINARY), m.attempt,
    CAST(m.error AS BINARY), {_micros("m.created_at")}, {_micros("m.updated_at")},
    {_micros("m.expires_at")}, m.token, m.result, m.dead
FROM {_TABLE} AS m
WHERE m.status = 'failed' AND (m.dead OR m.result IS NOT NULL)
    AND (UNHEX(:consumer) IN ('', m.consumer)) AND (UNHEX(:key) IN ('', m.idempotency_key))
ORDER BY m.updated_at DESC, m.consumer, m.idempotency_key LIMIT :limit"""

_FREE: Final = (
    f"UPDATE {_TABLE} AS m SET m.dead = FALSE, m.attempt = 0, m.updated_at = {_OWN}, "
    f"m.lease_end = {_OWN} WHERE {_PLACE} AND m.status = 'failed' AND m.token = :token"
)

MYSQL_STATEMENTS: Final = Statements(
    claim_new=_claim(_THEIRS),
    claim=_claim(_THEIRS),
    claim_many=_CLAIM_MANY,
    claim_alone=_claim(_OWN),
    read=_READ,
    read_here=_READ_HERE,
    read_many=_READ_MANY,
    complete=_COMPLETE,
    complete_many=_COMPLETE_MANY,
    settle=_SETTLE,
    confirm=_CONFIRM,
    release=_RELEASE,
    renew=_RENEW,
    count=_CONFIRM,
    forget=_FORGET,
    purge=_PURGE,
    due=_DUE,
    dead=_DEAD,
    free=_FREE,
)
