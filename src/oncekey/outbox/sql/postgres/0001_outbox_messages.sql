-- One row per message. Of the rows with one message_key, numbers are in the order of their commits.
CREATE TABLE outbox_messages (
    number       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id   VARCHAR(256) NOT NULL UNIQUE,
    destination  VARCHAR(255) NOT NULL,
    message_key  VARCHAR(256) COLLATE "C",
    message_type VARCHAR(100) NOT NULL,
    -- JSON, with texts and numbers only.
    attributes   TEXT         NOT NULL,
    body         BYTEA        NOT NULL,
    -- pending, sent or dead. No CHECK says so: the server would read its text anew for each put.
    status       VARCHAR(20)  NOT NULL DEFAULT 'pending',
    created_at   TIMESTAMPTZ  NOT NULL DEFAULT clock_timestamp(),
    -- When a relay may take it: at once, after a delay or a pause, or when the lease of another ends.
    due_at       TIMESTAMPTZ  NOT NULL,
    sent_at      TIMESTAMPTZ,
    -- Failures that count; an outage of the broker does not.
    tries        INTEGER      NOT NULL DEFAULT 0,
    error        TEXT,
    -- Whether a try ended without an answer, so that the broker may have the message.
    unknown      BOOLEAN      NOT NULL DEFAULT FALSE,
    -- Token and nonce together prove which relay has taken it.
    token        BIGINT       NOT NULL DEFAULT 0,
    nonce        VARCHAR(64)  NOT NULL DEFAULT ''
) WITH (fillfactor = 80);  -- room for the lease and the mark beside the message

-- Sent rows are in none of these but the last, so that what they cost does not grow with them.
CREATE INDEX outbox_messages_due ON outbox_messages (due_at)
    WHERE status = 'pending' AND message_key IS NULL;
CREATE INDEX outbox_messages_heads ON outbox_messages (message_key, number)
    WHERE status <> 'sent' AND message_key IS NOT NULL;
CREATE INDEX outbox_messages_dead ON outbox_messages (number) WHERE status = 'dead';
CREATE INDEX outbox_messages_sent ON outbox_messages (sent_at) WHERE status = 'sent';

-- One row: the number of migrations that this table has seen, the smallest number that a release
-- must know to use it, and an identity that distinguishes this database from others. While an idle
-- relay listens, each transaction with a message notifies it.
CREATE TABLE outbox_messages_schema (
    version         INTEGER NOT NULL,
    oldest          INTEGER NOT NULL,
    identity        VARCHAR(36) NOT NULL,
    listening_until TIMESTAMPTZ NOT NULL DEFAULT '-infinity'
);
INSERT INTO outbox_messages_schema VALUES (1, 1, CAST(gen_random_uuid() AS text));

-- Puts a message into the transaction of the caller. Returns whether this is the database meant.
CREATE OR REPLACE FUNCTION outbox_messages_put(
    put_id text, put_to text, put_type text, put_attributes text, put_body bytea, meant text,
    put_key text DEFAULT NULL, put_after double precision DEFAULT 0
) RETURNS boolean LANGUAGE plpgsql AS $put$
DECLARE
    listening timestamptz;
BEGIN
    SELECT listening_until INTO listening FROM outbox_messages_schema WHERE identity = meant;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The lock is kept to the end of the transaction, and the number is drawn after it was had.
    -- Drawn before, it could be lower than one that was committed already.
    IF put_key IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(put_key, 25));
    END IF;
    INSERT INTO outbox_messages (
        message_id, destination, message_key, message_type, attributes, body, created_at, due_at
    ) VALUES (
        put_id, put_to, put_key, put_type, put_attributes, put_body, clock_timestamp(),
        clock_timestamp() + make_interval(secs => put_after)
    ) ON CONFLICT (message_id) DO NOTHING;
    -- Only while an idle relay wants it: transactions that notify are committed one by one.
    IF listening > statement_timestamp() THEN
        PERFORM pg_notify('oncekey_outbox', meant);
    END IF;
    RETURN true;
END
$put$;
