-- MySQL commits each statement here by itself, so that each may be repeated, and the version is
-- written last, by who migrates.

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this database from others.
CREATE TABLE IF NOT EXISTS processed_messages_schema (
    one      INTEGER NOT NULL DEFAULT 1 PRIMARY KEY,
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARBINARY(36) NOT NULL
) ENGINE = InnoDB;
INSERT INTO processed_messages_schema (one, version, oldest, identity) VALUES (1, 0, 1, UUID())
ON DUPLICATE KEY UPDATE one = 1;

-- One row per consumer and key. What is compared is compared byte by byte. Times are UTC.
CREATE TABLE IF NOT EXISTS processed_messages (
    consumer        VARBINARY(1020) NOT NULL,
    idempotency_key VARBINARY(1024) NOT NULL,
    message_id      VARCHAR(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_type    VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    status          VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (status IN ('processing', 'completed', 'failed')),
    started_at      DATETIME(6) NOT NULL,
    completed_at    DATETIME(6),
    error           LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    expires_at      DATETIME(6) NOT NULL,
    created_at      DATETIME(6) NOT NULL,
    updated_at      DATETIME(6) NOT NULL,
    -- Token and nonce together prove who owns a claim.
    token           BIGINT NOT NULL,
    nonce           VARBINARY(64) NOT NULL,
    attempt         BIGINT NOT NULL,
    lease_end       DATETIME(6) NOT NULL,
    fingerprint     VARBINARY(100),
    result          LONGBLOB,
    -- The original bytes of the error: text can hold neither NUL nor invalid Unicode.
    error_bytes     LONGBLOB,
    -- Whether the message failed for good and is not processed again.
    dead            BOOLEAN NOT NULL DEFAULT FALSE,
    -- How often an answer was given again. InnoDB writes nothing for a row that stays as it was, and
    -- such a commit would wait for no replica.
    again           INTEGER UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, idempotency_key),
    INDEX idx_processed_messages_expires_at (expires_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
