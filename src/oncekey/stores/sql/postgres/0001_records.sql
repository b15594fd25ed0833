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
    PRIMARY KEY (scope, key)
);

-- What purge looks for.
CREATE INDEX oncekey_records_expires ON oncekey_records (expires) WHERE expires > 0;

-- How many migrations this schema has seen, and the fewest that a release must know to use it.
-- One row. Only a migration that takes something away raises `oldest`.
CREATE TABLE oncekey_schema (version integer NOT NULL, oldest integer NOT NULL);
INSERT INTO oncekey_schema VALUES (1, 1);
