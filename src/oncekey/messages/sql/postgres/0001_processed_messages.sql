-- One row per consumer and key. What the inbox adds has a default, so that plain SQL which knows
-- only the columns above it goes on working.
CREATE TABLE processed_messages (
    consumer        VARCHAR(255) NOT NULL DEFAULT '',
    idempotency_key VARCHAR(256) NOT NULL,
    message_id      VARCHAR(256) NOT NULL,
    message_type    VARCHAR(100) NOT NULL,
    status          VARCHAR(20)  NOT NULL CHECK (status IN ('processing', 'completed', 'failed')),
    started_at      TIMESTAMPTZ  NOT NULL,
    completed_at    TIMESTAMPTZ,
    error           TEXT,
    expires_at      TIMESTAMPTZ  NOT NULL,
    created_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    updated_at      TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    -- The owner of a claim is who knows both.
    token           BIGINT       NOT NULL DEFAULT 0,
    nonce           VARCHAR(64)  NOT NULL DEFAULT '',
    attempt         BIGINT       NOT NULL DEFAULT 1,
    lease_end       TIMESTAMPTZ  NOT NULL DEFAULT NOW(),
    fingerprint     VARCHAR(100),
    result          BYTEA,
    -- The error as it was: text can hold neither NUL nor what is not Unicode.
    error_bytes     BYTEA,
    -- Failed for good: it is not processed again.
    dead            BOOLEAN      NOT NULL DEFAULT FALSE,
    PRIMARY KEY (consumer, idempotency_key)
) WITH (fillfactor = 80);  -- room for the completion beside the claim

CREATE INDEX idx_processed_messages_expires_at ON processed_messages (expires_at);

-- How many migrations this table has seen, and the fewest that a release must know to use it.
-- The identity tells this database from another one that has the same table. One row.
CREATE TABLE processed_messages_schema (
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARCHAR(36) NOT NULL
);
INSERT INTO processed_messages_schema VALUES (1, 1, CAST(gen_random_uuid() AS text));
