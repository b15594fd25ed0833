"""The SQL statements of the outbox on MySQL and MariaDB, where they differ from the others.

A relay looks for messages that it may take without a lock, and takes them on condition that nobody
has done so since. Statements of several steps end with what the last one finds.
"""

from __future__ import annotations

from typing import Final

from oncekey.messages.statements import MYSQL

_OWN: Final = "SYSDATE(6)"
_THEIRS: Final = MYSQL.moment
"""The start of a statement, which can be looked up in an index."""


def _text(name: str) -> str:
    return f"CONVERT(UNHEX(:{name}) USING utf8mb4)"


def _micros(moment: str) -> str:
    return MYSQL.micros.format(moment)


# Not INSERT ... SELECT, which keeps the next number from everybody while it waits for the message
# of another transaction with this id. In another database there is no time to be had.
PUT: Final = f"""INSERT INTO outbox_messages (message_id, destination, message_key, message_type,
    attributes, body, created_at, due_at)
VALUES ({_text("message_id")}, {_text("destination")}, {_text("key")}, {_text("message_type")},
    {_text("attributes")}, UNHEX(:body),
    (SELECT {_THEIRS} FROM outbox_messages_schema WHERE identity = UNHEX(:identity)),
    {_THEIRS} + INTERVAL :after MICROSECOND)
ON DUPLICATE KEY UPDATE token = token"""

# The lock is kept to the end of the transaction. The number is drawn after it was taken. Drawn
# before, it could be lower than one that was committed already.
PUT_IN_ORDER: Final = (
    "UPDATE outbox_messages_turns SET turn = turn WHERE turn = MOD(CRC32(UNHEX(:key)), 65536);\n"
    + PUT
)

_PATTERN: Final = (
    "JSON_TABLE(CONVERT(UNHEX(:{name}) USING utf8mb4), '$[*]' COLUMNS (pattern VARCHAR(600) "
    "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS r"
)
_ROUTED: Final = (
    f"EXISTS (SELECT 1 FROM {_PATTERN.format(name='routes')} WHERE m.destination LIKE r.pattern) "
    f"AND NOT EXISTS (SELECT 1 FROM {_PATTERN.format(name='resting')} "
    f"WHERE m.destination LIKE r.pattern)"
)

FREE: Final = f"""SELECT m.number FROM outbox_messages AS m
WHERE m.free_due <= {_THEIRS} AND {_ROUTED} ORDER BY m.free_due LIMIT :limit"""
"""Messages without a key that may be sent now."""

# MySQL evaluates all of an inner query, however few of its rows are wanted, and skips from key to
# key only when it thinks that cheap. So some entries of the index are looked at, and the next
# question begins behind the last key that was among them, however many messages it has.
HEADS: Final = f"""SELECT m.number, h.unsent_key, h.seen,
    COALESCE(m.status = 'pending' AND m.due_at <= {_THEIRS} AND {_ROUTED}, FALSE)
FROM (SELECT w.unsent_key, count(*) AS seen FROM (
        SELECT unsent_key FROM outbox_messages FORCE INDEX (outbox_messages_heads)
        WHERE unsent_key > {_text("behind")} ORDER BY unsent_key LIMIT :limit) AS w
    GROUP BY w.unsent_key) AS h
LEFT JOIN outbox_messages AS m ON m.number = (
    SELECT o.number FROM outbox_messages AS o FORCE INDEX (outbox_messages_heads)
    WHERE o.unsent_key = h.unsent_key ORDER BY o.number LIMIT 1)
ORDER BY h.unsent_key"""
"""Some keys in their order, the first unsent message of each, and whether it may be sent now."""

HEADS_PAST_DEAD: Final = HEADS.replace(
    "WHERE o.unsent_key = h.unsent_key",
    "WHERE o.unsent_key = h.unsent_key AND o.status = 'pending'",
)

_BATCH: Final = """JSON_TABLE(CONVERT(UNHEX(:batch) USING utf8mb4), '$[*]' COLUMNS (
    n BIGINT PATH '$.n',
    t BIGINT PATH '$.t',
    pause DOUBLE PATH '$.pause',
    outcome VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin PATH '$.outcome',
    failures INTEGER PATH '$.failures',
    why LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.why',
    doubt INTEGER PATH '$.doubt'
)) AS b"""
_LOOKED_UP: Final = (
    f"{_BATCH} STRAIGHT_JOIN outbox_messages AS m FORCE INDEX (PRIMARY) ON m.number = b.n"
)
_OURS: Final = "m.token = b.t AND m.nonce = UNHEX(:nonce)"

TAKE: Final = f"""UPDATE {_LOOKED_UP} SET
    m.due_at = {_OWN} + INTERVAL :lease MICROSECOND,
    m.token = m.token + 1,
    m.nonce = UNHEX(:nonce)
WHERE m.status = 'pending' AND m.due_at <= {_THEIRS};
SELECT m.number, m.token, m.message_id, m.destination, m.message_key, m.message_type, m.attributes,
    m.body, m.tries
FROM {_LOOKED_UP} WHERE m.nonce = UNHEX(:nonce)"""
"""The messages that were found, unless somebody else has taken them since."""

SENT: Final = f"""UPDATE {_LOOKED_UP} SET m.status = 'sent', m.sent_at = {_OWN}, m.error = NULL
WHERE {_OURS} AND m.status = 'pending';
SELECT m.number FROM {_LOOKED_UP} WHERE {_OURS} AND m.status = 'sent'"""

FAILED: Final = f"""UPDATE {_LOOKED_UP} SET
    m.due_at = {_OWN} + INTERVAL ROUND(1000000 * b.pause) MICROSECOND,
    m.tries = b.failures,
    m.error = COALESCE(b.why, m.error),
    m.`unknown` = (m.`unknown` OR b.doubt),
    m.status = b.outcome
WHERE {_OURS} AND m.status = 'pending';
SELECT m.number FROM {_LOOKED_UP} WHERE {_OURS} AND m.status = b.outcome"""

PURGE: Final = f"""SELECT number FROM outbox_messages
WHERE sent_at < {_THEIRS} - INTERVAL :keep MICROSECOND
ORDER BY sent_at LIMIT :limit FOR UPDATE SKIP LOCKED;
DELETE m FROM JSON_TABLE(CONVERT(UNHEX(:found) USING utf8mb4), '$[*]' COLUMNS (
    n BIGINT PATH '$[0]'
)) AS b STRAIGHT_JOIN outbox_messages AS m FORCE INDEX (PRIMARY) ON m.number = b.n"""

_COUNTED: Final = "(SELECT count(*) FROM outbox_messages WHERE status = '{}')"
FIGURES: Final = f"""SELECT count(*), {_micros("MIN(IF(token = 0, due_at, created_at))")},
    {_micros(_OWN)}, {_COUNTED.format("dead")}, {_COUNTED.format("sent")}
FROM outbox_messages WHERE status = 'pending'"""

WAITING: Final = f"""SELECT message_id, destination, message_key, message_type, tries, error,
    `unknown`, {_micros("created_at")}
FROM outbox_messages WHERE status = 'pending' ORDER BY created_at LIMIT :limit"""

DEAD: Final = f"""SELECT number, token, message_id, destination, message_key, message_type,
    attributes, body, tries, error, `unknown`, {_micros("created_at")}, {_micros("due_at")}
FROM outbox_messages WHERE status = 'dead' AND number > :behind
    AND {_text("message_id")} IN ('', message_id)
ORDER BY number LIMIT :limit"""

_LETTER: Final = "number = :number AND token = :token AND status = 'dead'"

REVIVE: Final = f"""UPDATE outbox_messages SET status = 'pending', tries = 0, due_at = {_OWN}
WHERE {_LETTER}"""

EDIT: Final = f"""UPDATE outbox_messages SET
    message_id = {_text("message_id")},
    destination = {_text("destination")},
    message_type = {_text("message_type")},
    attributes = {_text("attributes")},
    body = UNHEX(:body),
    status = 'pending', tries = 0, error = NULL, `unknown` = FALSE, due_at = {_OWN}
WHERE {_LETTER}"""

DROP: Final = f"DELETE FROM outbox_messages WHERE {_LETTER}"
