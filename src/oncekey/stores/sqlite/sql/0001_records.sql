-- One row per scope and key. Times are microseconds; 0 stands for not yet, or never.
-- No scope is the empty text, which no scope can be.
CREATE TABLE oncekey_records (
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    fingerprint TEXT,
    token       INTEGER NOT NULL,
    nonce       TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    lease_end   INTEGER NOT NULL,
    result      BLOB,
    error       BLOB,
    noted       BLOB    NOT NULL,
    revision    INTEGER NOT NULL,
    uncertain   INTEGER NOT NULL,
    label       TEXT    NOT NULL,
    reference   TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    started     INTEGER NOT NULL,
    updated     INTEGER NOT NULL,
    finished    INTEGER NOT NULL,
    expires     INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    -- Who resolved it by hand, when and why: the time and the entry of the audit trail.
    hand        BLOB    NOT NULL DEFAULT x'',
    -- When purge may look at a record: it expires no sooner than this. Not part of the record.
    -- `expires` changes with every write, `due` stays from claim to settle, so that a settle
    -- changes no index.
    due         INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE INDEX oncekey_records_due ON oncekey_records (due) WHERE due > 0;

-- Only held records never expire. They wait for a person, who finds and counts them by this index.
CREATE INDEX oncekey_records_held ON oncekey_records (expires, status, updated) WHERE expires = 0;

-- What people did by hand, with the time in microseconds. It outlives the records.
CREATE TABLE oncekey_audit (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, entry BLOB NOT NULL);

-- How many calls there were, for the charts: 372 slots that are used in turn, each for `width`
-- microseconds from `at` on.
CREATE TABLE IF NOT EXISTS oncekey_activity (
    place      INTEGER PRIMARY KEY,
    width      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    new        INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    held       INTEGER NOT NULL,
    errors     INTEGER NOT NULL
);

-- How many migrations this file has seen. One row.
CREATE TABLE oncekey_schema (version INTEGER NOT NULL);
INSERT INTO oncekey_schema VALUES (0);
