-- One row per scope and key. Times are microseconds; 0 stands for not yet, or never.
-- No scope is the empty text, which no scope can be. "C" is the order of code points.
CREATE TABLE oncekey_records (
    scope       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    status      text    NOT NULL,
    fingerprint text,
    token       bigint  NOT NULL,
    nonce       text    NOT NULL,
    attempt     bigint  NOT NULL,
    lease_end   bigint  NOT NULL,
    result      bytea,
    error       bytea,
    noted       bytea   NOT NULL,
    revision    bigint  NOT NULL,
    uncertain   boolean NOT NULL,
    label       text    NOT NULL,
    reference   text    NOT NULL,
    created     bigint  NOT NULL,
    started     bigint  NOT NULL,
    updated     bigint  NOT NULL,
    finished    bigint  NOT NULL,
    expires     bigint  NOT NULL,
    version     integer NOT NULL,
    -- Not part of the record. The record expires no sooner than this; 0: never.
    due         bigint  NOT NULL,
    -- The token of the attempt whose end somebody waits for.
    waited      bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, key)
);

-- What purge looks for. `expires` moves with every write, `due` stands still from claim to settle:
-- so that a settle changes no index, and the row stays in its page.
CREATE INDEX oncekey_records_due ON oncekey_records (due) WHERE due > 0;

-- How many migrations this schema has seen, and the fewest that a release must know to use it.
-- One row. Only a migration that takes something away raises `oldest`.
CREATE TABLE oncekey_schema (version integer NOT NULL, oldest integer NOT NULL);
INSERT INTO oncekey_schema VALUES (1, 1);
