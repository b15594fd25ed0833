-- One row per message. Times are UTC, as in '2026-11-15 09:30:00.123456': they sort as text.
CREATE TABLE outbox_messages (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id   VARCHAR(256) NOT NULL UNIQUE,
    destination  VARCHAR(255) NOT NULL,
    message_key  VARCHAR(256),
    message_type VARCHAR(100) NOT NULL,
    -- JSON, with texts and numbers only.
    attributes   TEXT         NOT NULL,
    body         BLOB         NOT NULL,
    status       VARCHAR(20)  NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'dead')),
    created_at   TEXT         NOT NULL DEFAULT CURRENT_TIMESTAMP,
    -- When a relay may take it: at once, after a delay or a pause, or when the lease of another ends.
    due_at       TEXT         NOT NULL,
    sent_at      TEXT,
    -- Failures that count; an outage of the broker does not.
    tries        INTEGER      NOT NULL DEFAULT 0,
    error        TEXT,
    -- Whether a try ended without an answer, so that the broker may have the message.
    unknown      INTEGER      NOT NULL DEFAULT 0,
    -- Token and nonce together prove which relay has taken it.
    token        INTEGER      NOT NULL DEFAULT 0,
    nonce        VARCHAR(64)  NOT NULL DEFAULT ''
);

-- Sent rows are in none of these but the last, so that what they cost does not grow with them.
CREATE INDEX outbox_messages_due ON outbox_messages (due_at)
    WHERE status = 'pending' AND message_key IS NULL;
CREATE INDEX outbox_messages_heads ON outbox_messages (message_key, number)
    WHERE status <> 'sent' AND message_key IS NOT NULL;
CREATE INDEX outbox_messages_dead ON outbox_messages (number) WHERE status = 'dead';
CREATE INDEX outbox_messages_sent ON outbox_messages (sent_at) WHERE status = 'sent';

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this file from others.
CREATE TABLE outbox_messages_schema (
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARCHAR(36) NOT NULL
);
INSERT INTO outbox_messages_schema VALUES (1, 1, lower(hex(randomblob(16))));
