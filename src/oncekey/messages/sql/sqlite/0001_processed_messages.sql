-- One row per consumer and key. Times are UTC, as in '2026-11-15 09:30:00.123456': they sort
-- as text in order of time, and compare with datetime('now', '-7 days').
CREATE TABLE processed_messages (
    consumer        VARCHAR(255) NOT NULL DEFAULT '',
    idempotency_key VARCHAR(256) NOT NULL,
    message_id      VARCHAR(256) NOT NULL,
    message_type    VARCHAR(100) NOT NULL,
    status          VARCHAR(20)  NOT NULL CHECK (status IN ('processing', 'completed', 'failed')),
    started_at      TEXT         NOT NULL,
    completed_at    TEXT,
    error           TEXT,
    expires_at      TEXT         NOT NULL,
    created_at      TEXT         NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at      TEXT         NOT NULL DEFAULT CURRENT_TIMESTAMP,
    -- Token and nonce together prove who owns a claim.
    token           INTEGER      NOT NULL DEFAULT 0,
    nonce           VARCHAR(64)  NOT NULL DEFAULT '',
    attempt         INTEGER      NOT NULL DEFAULT 1,
    lease_end       TEXT         NOT NULL DEFAULT CURRENT_TIMESTAMP,
    fingerprint     VARCHAR(100),
    result          BLOB,
    error_bytes     BLOB,
    -- Whether the message failed for good and is not processed again.
    dead            INTEGER      NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, idempotency_key)
);

CREATE INDEX idx_processed_messages_expires_at ON processed_messages (expires_at);

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this database from others.
CREATE TABLE processed_messages_schema (
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARCHAR(36) NOT NULL
);
INSERT INTO processed_messages_schema VALUES (1, 1, lower(hex(randomblob(16))));
