-- One row per consumer and key. The columns from token on have defaults, so that plain SQL which
-- knows only the columns above them still works.
CREATE TABLE processed_messages (
    consumer        VARCHAR(255) NOT NULL DEFAULT '',
    idempotency_key VARCHAR(256) NOT NULL,
    message_id      VARCHAR(256) NOT NULL,
    message_type    VARCHAR(100) NOT NULL,
    -- processing, completed or failed. No CHECK says so: the server would read its text anew for each
    -- claim and for each completion.
    status          VARCHAR(20)  NOT NULL,
    started_at      TIMESTAMPTZ  NOT NULL,
    completed_at    TIMESTAMPTZ,
    error           TEXT,
    expires_at      TIMESTAMPTZ  NOT NULL,
    created_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    updated_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    -- Token and nonce together prove who owns a claim.
    token           BIGINT       NOT NULL DEFAULT 0,
    nonce           VARCHAR(64)  NOT NULL DEFAULT '',
    attempt         BIGINT       NOT NULL DEFAULT 1,
    lease_end       TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    fingerprint     VARCHAR(100),
    result          BYTEA,
    -- The original bytes of the error: text can hold neither NUL nor invalid Unicode.
    error_bytes     BYTEA,
    -- Whether the message failed for good and is not processed again.
    dead            BOOLEAN      NOT NULL DEFAULT FALSE,
    PRIMARY KEY (consumer, idempotency_key)
) WITH (fillfactor = 80);  -- room for the completion beside the claim

CREATE INDEX idx_processed_messages_expires_at ON processed_messages (expires_at);

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this database from others.
CREATE TABLE processed_messages_schema (
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARCHAR(36) NOT NULL
);
INSERT INTO processed_messages_schema VALUES (1, 1, CAST(gen_random_uuid() AS text));
