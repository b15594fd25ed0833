-- MySQL commits each statement here by itself, so that each may be repeated, and the version is
-- written last, by who migrates.

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this database from others.
CREATE TABLE IF NOT EXISTS outbox_messages_schema (
    one      INTEGER NOT NULL DEFAULT 1 PRIMARY KEY,
    version  INTEGER NOT NULL,
    oldest   INTEGER NOT NULL,
    identity VARBINARY(36) NOT NULL
) ENGINE = InnoDB;
INSERT INTO outbox_messages_schema (one, version, oldest, identity) VALUES (1, 0, 1, UUID())
ON DUPLICATE KEY UPDATE one = 1;

-- What transactions that put messages of one key wait for: a row for each value of a hash. They are
-- locked, and never changed.
CREATE TABLE IF NOT EXISTS outbox_messages_turns (
    turn INTEGER UNSIGNED NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT IGNORE INTO outbox_messages_turns (turn)
SELECT a.n + 16 * b.n + 256 * c.n + 4096 * d.n
FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
    UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
    UNION ALL SELECT 14 UNION ALL SELECT 15) AS a
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
    UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
    UNION ALL SELECT 14 UNION ALL SELECT 15) AS b
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
    UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
    UNION ALL SELECT 14 UNION ALL SELECT 15) AS c
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
    UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
    UNION ALL SELECT 14 UNION ALL SELECT 15) AS d;

-- One row per message. Of the rows with one message_key, numbers are in the order of their commits.
-- What is compared is compared letter by letter. Times are UTC.
CREATE TABLE IF NOT EXISTS outbox_messages (
    number       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    message_id   VARCHAR(256) NOT NULL,
    destination  VARCHAR(255) NOT NULL,
    message_key  VARCHAR(256),
    message_type VARCHAR(100) NOT NULL,
    -- JSON, with texts and numbers only.
    attributes   LONGTEXT NOT NULL,
    body         LONGBLOB NOT NULL,
    status       VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'sent', 'dead')),
    created_at   DATETIME(6) NOT NULL,
    -- When a relay may take it: at once, after a delay or a pause, or when the lease of another ends.
    due_at       DATETIME(6) NOT NULL,
    sent_at      DATETIME(6),
    -- Failures that count; an outage of the broker does not.
    tries        INTEGER NOT NULL DEFAULT 0,
    error        LONGTEXT,
    -- Whether a try ended without an answer, so that the broker may have the message.
    `unknown`    BOOLEAN NOT NULL DEFAULT FALSE,
    -- Token and nonce together prove which relay has taken it.
    token        BIGINT NOT NULL DEFAULT 0,
    nonce        VARBINARY(64) NOT NULL DEFAULT '',
    -- MySQL has no index of some rows only. These two are NULL where a row is of no interest.
    free_due     DATETIME(6)
        GENERATED ALWAYS AS (IF(status = 'pending' AND message_key IS NULL, due_at, NULL)) STORED,
    unsent_key   VARCHAR(256) GENERATED ALWAYS AS (IF(status = 'sent', NULL, message_key)) STORED,
    UNIQUE INDEX outbox_messages_id (message_id),
    INDEX outbox_messages_due (free_due),
    INDEX outbox_messages_heads (unsent_key, number),
    INDEX outbox_messages_states (status, created_at),
    INDEX outbox_messages_sent (sent_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
