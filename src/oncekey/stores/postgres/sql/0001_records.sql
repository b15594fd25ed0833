-- The schema of the first release. It is edited in place until there is one. From then on no
-- function is changed: a new rule is a new function with the next number, in a new file, beside the
-- old one that older releases go on calling.

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
    -- Who resolved it by hand, when and why: the time and the entry of the audit trail.
    hand        bytea   NOT NULL DEFAULT '',
    PRIMARY KEY (scope, key)
);

-- What purge looks for. `expires` moves with every write, `due` stands still from claim to settle:
-- so that a settle changes no index, and the row stays in its page.
CREATE INDEX oncekey_records_due ON oncekey_records (due) WHERE due > 0;

-- What people who look at records go by: the newest first, and those that are held. Neither
-- `created` nor `due` moves from claim to settle. Only held records are never due, so the second
-- index is empty as long as nothing is held.
CREATE INDEX oncekey_records_created ON oncekey_records (created);
CREATE INDEX oncekey_records_held ON oncekey_records (created) WHERE due = 0;

-- What people did by hand, with the time. It outlives the records.
CREATE TABLE IF NOT EXISTS oncekey_audit (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at    bigint NOT NULL,
    entry bytea  NOT NULL
);

-- How many calls there were, for the charts: 372 slots that are used in turn, each for `width`
-- microseconds from `at` on.
CREATE TABLE IF NOT EXISTS oncekey_activity (
    place      bigint PRIMARY KEY,
    width      bigint NOT NULL,
    at         bigint NOT NULL,
    new        bigint NOT NULL,
    duplicates bigint NOT NULL,
    held       bigint NOT NULL,
    errors     bigint NOT NULL
);

-- How many migrations this schema has seen, and the fewest that a release must know to use it.
-- One row. Only a migration that takes something away raises `oldest`.
CREATE TABLE oncekey_schema (version integer NOT NULL, oldest integer NOT NULL);
INSERT INTO oncekey_schema VALUES (1, 1);

-- The verbs, each one statement for its caller: the rules of machine.py, line by line. Nobody waits
-- for a row longer than four seconds, which is less than a client waits for us.

CREATE OR REPLACE FUNCTION oncekey_now_v1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Both known, of one version, and not the same.
CREATE OR REPLACE FUNCTION oncekey_differ_v1(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(one <> other AND split_part(one, ':', 1) = split_part(other, ':', 1), false)
$$;

-- Those who wait for this record are told that it has changed. Nothing is sent where nobody waits.
CREATE OR REPLACE FUNCTION oncekey_wake_v1(p_scope text, p_key text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('oncekey_' || left(encode(sha256(named), 'hex'), 48), '')
    FROM convert_to(p_scope || chr(10) || p_key, 'UTF8') AS named
$$;

-- The commit of this transaction waits for the disk, and for the synchronous standbys if there are
-- any, whatever the session has been told.
CREATE OR REPLACE FUNCTION oncekey_durable_v1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- What a claim is told that changes nothing; null if it must write. The owner who asks again is not
-- told "granted" here: a transaction that only reads does not wait for the standbys.
CREATE OR REPLACE FUNCTION oncekey_judged_v1(
    r oncekey_records, p_nonce text, p_fingerprint text, p_moment bigint
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN r.version > 1 THEN 'newer'
        WHEN r.expires > 0 AND r.expires <= p_moment THEN NULL
        WHEN (r.status <> 'released' OR r.noted <> '' OR r.uncertain)
            AND oncekey_differ_v1(r.fingerprint, p_fingerprint) THEN 'mismatch'
        WHEN r.status IN ('completed', 'failed') THEN 'replay'
        WHEN r.status = 'held' THEN 'held'
        WHEN r.nonce = p_nonce THEN CASE r.status WHEN 'released' THEN 'spent' END
        WHEN r.status = 'running' AND p_moment < r.lease_end THEN 'busy'
    END
$$;

-- A claim is answered in binary form: the moment alone where the record is new, because the caller
-- knows everything else that stands in it; otherwise the answer, the moment and the record.
--
-- This is for the sessions of the store, which wait for no row longer than four seconds anyway, and
-- for the standbys.
CREATE OR REPLACE FUNCTION oncekey_claim_bound_v1(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text
) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    locked boolean := false;
    afresh boolean;
    moment bigint;
    later bigint;
    answer text;
    r oncekey_records;
BEGIN
    LOOP
        -- Most duplicates change nothing: they take no lock and write nothing.
        IF locked THEN
            SELECT * INTO r FROM oncekey_records t
                WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
        ELSE
            SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
        END IF;
        moment := oncekey_now_v1();  -- after the lock: what waited is not judged by an old time
        IF FOUND THEN
            answer := oncekey_judged_v1(r, p_nonce, p_fingerprint, moment);
            IF answer IS NOT NULL THEN
                RETURN record_send(ROW(answer, moment, r));
            END IF;
            EXIT WHEN locked;
            locked := true;  -- it has to change: look again, and let nobody else in
            CONTINUE;
        END IF;
        INSERT INTO oncekey_records (
            scope, key, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
            uncertain, label, reference, created, started, updated, finished, expires, version, due
        ) VALUES (
            p_scope, p_key, 'running', p_fingerprint, moment, p_nonce, 1, moment + p_lease, '', 0,
            false, p_label, p_reference, moment, moment, moment, 0,
            moment + p_lease + greatest(p_ttl, day), 1, moment + p_ttl
        ) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            later := oncekey_now_v1();
            IF later - moment > p_lease / 10 THEN
                -- It waited for somebody who then inserted nothing: the lease starts now.
                moment := later;
                UPDATE oncekey_records t SET
                    token = moment, lease_end = moment + p_lease, created = moment,
                    started = moment, updated = moment,
                    expires = moment + p_lease + greatest(p_ttl, day), due = moment + p_ttl
                WHERE t.scope = p_scope AND t.key = p_key;
            END IF;
            RETURN int8send(moment);
        END IF;
        locked := false;  -- somebody else inserted it after we looked
    END LOOP;

    afresh := r.expires > 0 AND r.expires <= moment
        OR r.status = 'released' AND oncekey_differ_v1(r.fingerprint, p_fingerprint);
    IF r.status = 'running' AND r.nonce = p_nonce AND NOT afresh THEN
        -- The owner asks again. Its claim may be on this server alone, because somebody cancelled the
        -- wait for the standbys. The commit of this write waits for them: else two owners follow a
        -- fail-over.
        UPDATE oncekey_records t SET updated = t.updated
        WHERE t.scope = p_scope AND t.key = p_key;
        RETURN record_send(ROW('granted'::text, moment, r));
    END IF;
    IF r.status = 'running' AND r.waited = r.token THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    IF NOT afresh AND r.status = 'running' THEN
        r.uncertain := true;
        r.finished := r.lease_end;
    END IF;
    IF NOT afresh AND (r.status = 'running' AND p_hold OR r.attempt >= p_max_attempts) THEN
        UPDATE oncekey_records t SET
            status = 'held', uncertain = r.uncertain, updated = moment, finished = r.finished,
            expires = 0, due = 0
        WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
        RETURN record_send(ROW('held'::text, moment, r));
    END IF;
    UPDATE oncekey_records t SET
        status = 'running',
        fingerprint = CASE WHEN afresh THEN p_fingerprint
            ELSE coalesce(p_fingerprint, r.fingerprint) END,
        token = greatest(r.token + 1, moment),
        nonce = p_nonce,
        attempt = CASE WHEN afresh THEN 1 ELSE r.attempt + 1 END,
        lease_end = moment + p_lease,
        result = CASE WHEN afresh THEN NULL ELSE r.result END,
        error = CASE WHEN afresh THEN NULL ELSE r.error END,
        noted = CASE WHEN afresh THEN '' ELSE r.noted END,
        revision = CASE WHEN afresh THEN 0 ELSE r.revision END,
        uncertain = NOT afresh AND r.uncertain,
        label = CASE WHEN afresh OR p_label <> '' THEN p_label ELSE r.label END,
        reference = CASE WHEN afresh OR p_reference <> '' THEN p_reference ELSE r.reference END,
        created = CASE WHEN afresh THEN moment ELSE r.created END,
        started = moment,
        updated = moment,
        finished = CASE WHEN afresh THEN 0 ELSE r.finished END,
        hand = CASE WHEN afresh THEN '' ELSE r.hand END,
        expires = greatest(
            moment + p_lease + greatest(p_ttl, day),
            CASE WHEN afresh OR NOT r.uncertain THEN 0 ELSE r.expires END
        ),
        due = moment + p_ttl
    WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
    RETURN record_send(ROW('granted'::text, moment, r));
END
$$;

-- The same for sessions of the caller and of poolers: it sets both for each call.
CREATE OR REPLACE FUNCTION oncekey_claim_v1(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text
) RETURNS bytea LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
BEGIN
    PERFORM oncekey_durable_v1();
    RETURN oncekey_claim_bound_v1(
        p_scope, p_key, p_nonce, p_fingerprint, p_lease, p_ttl, p_hold, p_max_attempts, p_label,
        p_reference
    );
END
$$;

-- The writes of an owner are one UPDATE each, with the proof in its WHERE. Time is read before it:
-- a write that had to wait for the row is dated when it was asked for, and its lease or life is
-- shorter by that, never longer.

-- What an owner is told whose UPDATE found nothing: `done` where the record is as it was to become.
-- That is written once more, so that the commit waits for the standbys here too.
CREATE OR REPLACE FUNCTION oncekey_refused_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_same text[]
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r oncekey_records;
BEGIN
    LOOP
        SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
        IF r.version > 1 THEN
            RETURN 'newer';
        ELSIF r.scope IS NULL OR r.token <> p_token OR r.nonce <> p_nonce
            OR r.expires > 0 AND r.expires <= oncekey_now_v1() THEN
            RETURN 'lost';
        ELSIF NOT r.status = ANY (p_same) THEN
            RETURN 'ended';
        END IF;
        UPDATE oncekey_records t SET updated = t.updated
        WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce;
        IF FOUND THEN
            RETURN 'done';
        END IF;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION oncekey_renew_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_lease bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    moment CONSTANT bigint := oncekey_now_v1();
    until CONSTANT bigint := moment + p_lease + greatest(p_ttl, day);
BEGIN
    PERFORM oncekey_durable_v1();
    UPDATE oncekey_records t SET
        lease_end = moment + p_lease, updated = moment, due = least(t.due, until),
        expires = greatest(until, CASE WHEN t.uncertain THEN t.expires ELSE 0 END)
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND t.status = 'running' AND t.expires > moment AND t.version <= 1;
    IF FOUND THEN
        RETURN 'done';
    END IF;
    RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, '{}');
END
$$;

CREATE OR REPLACE FUNCTION oncekey_note_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_noted bytea, p_revision bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
BEGIN
    PERFORM oncekey_durable_v1();
    UPDATE oncekey_records t SET noted = p_noted, revision = p_revision, updated = moment
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND t.status IN ('running', 'held') AND (t.expires = 0 OR t.expires > moment)
        AND t.version <= 1 AND t.revision < p_revision;
    IF FOUND THEN
        RETURN 'done';
    END IF;
    -- Notes that are older than those kept already change nothing, and are no mistake.
    RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, ARRAY['running', 'held']);
END
$$;

CREATE OR REPLACE FUNCTION oncekey_settle_bound_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
    watched boolean;
BEGIN
    UPDATE oncekey_records t SET
        status = p_status, result = p_result, error = p_error, uncertain = false,
        updated = moment, finished = moment, expires = moment + p_ttl,
        due = least(nullif(t.due, 0), moment + p_ttl)
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND t.status IN ('running', 'held') AND (t.expires = 0 OR t.expires > moment)
        AND t.version <= 1
    RETURNING t.waited = p_token INTO watched;
    IF watched THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    IF watched IS NOT NULL THEN
        RETURN 'done';
    END IF;
    RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, ARRAY[p_status]);
END
$$;

CREATE OR REPLACE FUNCTION oncekey_settle_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
BEGIN
    PERFORM oncekey_durable_v1();
    RETURN oncekey_settle_bound_v1(
        p_scope, p_key, p_token, p_nonce, p_status, p_result, p_error, p_ttl
    );
END
$$;

CREATE OR REPLACE FUNCTION oncekey_release_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_error bytea,
    p_uncertain boolean, p_hold boolean, p_unused boolean, p_counted boolean,
    p_bare_ttl bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    becomes CONSTANT text := CASE WHEN p_hold THEN 'held' ELSE 'released' END;
    definite CONSTANT boolean := NOT (p_uncertain OR p_hold);
    r oncekey_records;
    moment bigint;
    promised bigint;
    until bigint := 0;
    earliest bigint := 0;
BEGIN
    PERFORM oncekey_durable_v1();
    SELECT * INTO r FROM oncekey_records t
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND (t.status = 'running' OR t.status = 'held' AND definite) AND t.version <= 1
    FOR UPDATE;
    moment := oncekey_now_v1();
    IF NOT FOUND OR r.expires > 0 AND r.expires <= moment THEN
        RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, ARRAY[becomes]);
    END IF;
    promised := CASE WHEN r.uncertain THEN r.expires ELSE 0 END;
    -- What made a first attempt uncertain can only be the end of its lease.
    r.uncertain := p_uncertain OR r.uncertain AND NOT (r.status = 'held' AND r.attempt <= 1);
    r.attempt := greatest(0, r.attempt - p_unused::int);
    IF NOT p_hold THEN
        until := moment + CASE
            WHEN r.noted <> '' OR r.uncertain OR p_counted AND r.attempt > 0
            THEN greatest(p_ttl, day) ELSE p_bare_ttl END;
        until := greatest(until, promised);
        earliest := CASE WHEN r.status = 'held' THEN until ELSE least(r.due, until) END;
    END IF;
    UPDATE oncekey_records t SET
        status = becomes,
        error = coalesce(p_error, t.error),
        uncertain = r.uncertain,
        attempt = r.attempt,
        lease_end = moment,
        updated = moment,
        -- A definite end does not move the moment since when the record has been uncertain.
        finished = CASE WHEN r.uncertain AND NOT p_uncertain THEN t.finished ELSE moment END,
        expires = until,
        due = earliest
    WHERE t.scope = p_scope AND t.key = p_key;
    IF r.waited = p_token THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    RETURN 'done';
END
$$;

-- Adds an entry to the audit trail, and removes the oldest ones.
CREATE OR REPLACE FUNCTION oncekey_audit_v1(p_entry bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    added bigint;
BEGIN
    INSERT INTO oncekey_audit (at, entry) VALUES (oncekey_now_v1(), p_entry) RETURNING id INTO added;
    DELETE FROM oncekey_audit a WHERE a.id <= added - 10000;
    RETURN added;
END
$$;

CREATE OR REPLACE FUNCTION oncekey_resolve_v1(
    p_scope text, p_key text, p_token bigint, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint, p_audit bytea
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    again CONSTANT boolean := p_status = 'released';
    moment CONSTANT bigint := oncekey_now_v1();
    until CONSTANT bigint := moment + CASE WHEN again THEN greatest(p_ttl, day) ELSE p_ttl END;
    newer boolean;
BEGIN
    PERFORM oncekey_durable_v1();
    UPDATE oncekey_records t SET
        status = p_status,
        token = greatest(t.token + 1, moment),  -- shuts the attempt out that may still be running
        attempt = CASE WHEN again THEN 0 ELSE t.attempt END,
        result = CASE WHEN again THEN t.result ELSE p_result END,
        error = CASE WHEN again THEN t.error ELSE p_error END,
        uncertain = false,
        updated = moment,
        finished = moment,
        expires = until,
        due = until,
        hand = CASE WHEN p_audit = '' THEN t.hand ELSE int8send(moment) || p_audit END
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token
        AND t.status = 'held' AND t.version <= 1;
    IF FOUND THEN
        IF p_audit <> '' THEN
            PERFORM oncekey_audit_v1(p_audit);
        END IF;
        RETURN 'done';
    END IF;
    SELECT t.version > 1 INTO newer FROM oncekey_records t
        WHERE t.scope = p_scope AND t.key = p_key;
    RETURN CASE WHEN newer THEN 'newer' ELSE 'lost' END;
END
$$;

CREATE OR REPLACE FUNCTION oncekey_forget_v1(
    p_scope text, p_key text, p_token bigint, p_force boolean, p_audit bytea
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    r oncekey_records;
BEGIN
    PERFORM oncekey_durable_v1();
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
    IF r.version > 1 THEN
        RETURN 'newer';
    ELSIF r.scope IS NULL THEN
        RETURN 'done';
    ELSIF NOT (r.expires > 0 AND r.expires <= oncekey_now_v1())
        AND (r.token <> p_token OR r.status IN ('running', 'held') AND NOT p_force) THEN
        RETURN 'lost';
    END IF;
    DELETE FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
    IF p_audit <> '' THEN
        PERFORM oncekey_audit_v1(p_audit);
    END IF;
    IF r.status = 'running' AND r.waited = r.token THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    RETURN 'done';
END
$$;

-- Adds to the sums of a moment. Nobody waits for the disk, and whoever finds a slot locked waits
-- for a moment only: these are numbers for a chart. All take the slots in the same order.
CREATE OR REPLACE FUNCTION oncekey_add_activity_v1(
    p_ago bigint, p_new bigint, p_duplicates bigint, p_held bigint, p_errors bigint
) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    second CONSTANT bigint := 1000000;
    latest CONSTANT bigint := oncekey_now_v1();
    moment CONSTANT bigint := latest - p_ago;
    added bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO oncekey_activity AS a (place, width, at, new, duplicates, held, errors)
    SELECT r.first + moment / r.width % r.length, r.width, moment - moment % r.width,
        p_new, p_duplicates, p_held, p_errors
    FROM (VALUES (60 * second, 60, 0), (600 * second, 144, 60), (3600 * second, 168, 204))
        AS r (width, length, first)
    WHERE latest - r.width * r.length < moment - moment % r.width
        AND moment - moment % r.width <= latest
    ORDER BY r.first
    ON CONFLICT (place) DO UPDATE SET
        new = excluded.new + CASE WHEN a.at = excluded.at THEN a.new ELSE 0 END,
        duplicates =
            excluded.duplicates + CASE WHEN a.at = excluded.at THEN a.duplicates ELSE 0 END,
        held = excluded.held + CASE WHEN a.at = excluded.at THEN a.held ELSE 0 END,
        errors = excluded.errors + CASE WHEN a.at = excluded.at THEN a.errors ELSE 0 END,
        at = excluded.at
    WHERE a.at <= excluded.at;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END
$$;

-- Keeps a record of another store, unless there is a living one.
CREATE OR REPLACE FUNCTION oncekey_restore_v1(
    p_scope text, p_key text, p_status text, p_fingerprint text, p_token bigint, p_nonce text,
    p_attempt bigint, p_lease_end bigint, p_result bytea, p_error bytea, p_noted bytea,
    p_revision bigint, p_uncertain boolean, p_label text, p_reference text, p_created bigint,
    p_started bigint, p_updated bigint, p_finished bigint, p_expires bigint, p_hand bytea
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
BEGIN
    PERFORM oncekey_durable_v1();
    IF p_expires > 0 AND p_expires <= moment THEN
        RETURN 'lost';
    END IF;
    DELETE FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key
        AND t.expires > 0 AND t.expires <= moment AND t.version <= 1;
    INSERT INTO oncekey_records (
        scope, key, status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
        revision, uncertain, label, reference, created, started, updated, finished, expires,
        version, due, hand
    ) VALUES (
        p_scope, p_key, p_status, p_fingerprint, p_token, p_nonce, p_attempt, p_lease_end, p_result,
        p_error, p_noted, p_revision, p_uncertain, p_label, p_reference, p_created, p_started,
        p_updated, p_finished, p_expires, 1, p_expires, p_hand
    ) ON CONFLICT DO NOTHING;
    RETURN CASE WHEN FOUND THEN 'done' ELSE 'lost' END;
END
$$;

-- How long the attempt may still run, in microseconds, with a mark that somebody waits for its end;
-- 0 when it does not run any more. The mark need not survive a crash, nor wait for the disk.
CREATE OR REPLACE FUNCTION oncekey_watch_v1(p_scope text, p_key text, p_token bigint) RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    left_over bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE oncekey_records t SET waited = p_token
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.status = 'running'
        AND t.waited <> p_token AND t.version <= 1;
    SELECT t.lease_end - oncekey_now_v1() INTO left_over FROM oncekey_records t
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.status = 'running'
        AND t.waited = p_token;
    RETURN greatest(left_over, 0);
END
$$;

-- What somebody holds just now is left for the next time.
CREATE OR REPLACE FUNCTION oncekey_purge_v1(p_grace bigint, p_limit bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH late AS MATERIALIZED (
        SELECT d.scope, d.key FROM oncekey_records d
        WHERE d.due > 0 AND d.due <= (SELECT oncekey_now_v1() - p_grace)
            AND d.expires > 0 AND d.expires <= (SELECT oncekey_now_v1() - p_grace)
        ORDER BY d.due LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM oncekey_records t USING late
        WHERE t.scope = late.scope AND t.key = late.key RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

-- Batches: many claims, or many settles, in one statement and one commit, for the tasks of one event
-- loop. None of them waits long for a row that another connection holds. Rows come in the order of
-- scope and key and none twice, so no two batches wait for each other. What fails, fails as a whole,
-- and each task asks alone. One answer stands for all if it is the same for all; otherwise each has
-- its own, and null makes its task ask alone.
--
-- The plans are kept for as long as a session lasts, and may be made while the table is empty: they
-- go by the primary key, whatever looks cheaper then.

CREATE OR REPLACE FUNCTION oncekey_claims_v1(
    p_scopes text[], p_keys text[], p_nonces text[], p_fingerprints text[], p_leases bigint[],
    p_ttls bigint[], p_holds boolean[], p_max_attempts bigint[], p_labels text[],
    p_references text[]
) RETURNS SETOF bytea LANGUAGE plpgsql SET lock_timeout = '100ms'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    moment CONSTANT bigint := oncekey_now_v1();
    granted bigint;
BEGIN
    PERFORM oncekey_durable_v1();
    INSERT INTO oncekey_records (
        scope, key, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
        uncertain, label, reference, created, started, updated, finished, expires, version, due
    ) SELECT
        a.scope, a.key, 'running', a.fingerprint, moment, a.nonce, 1, moment + a.lease, '', 0,
        false, a.label, a.reference, moment, moment, moment, 0,
        moment + a.lease + greatest(a.ttl, day), 1, moment + a.ttl
    FROM unnest(
        p_scopes, p_keys, p_nonces, p_fingerprints, p_leases, p_ttls, p_labels, p_references
    ) AS a (scope, key, nonce, fingerprint, lease, ttl, label, reference)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS granted = ROW_COUNT;
    -- A batch that was held up would hand out leases that are partly over.
    IF oncekey_now_v1() - moment > (SELECT min(lease) FROM unnest(p_leases) lease) / 10 THEN
        RAISE lock_not_available USING MESSAGE = 'the batch was held up';
    END IF;
    IF granted = cardinality(p_keys) THEN
        RETURN NEXT int8send(moment);
        RETURN;
    END IF;
    -- What was granted is what this transaction has inserted.
    RETURN QUERY SELECT CASE WHEN a.answer IS NOT NULL THEN
        record_send(ROW(a.answer, moment, a.found))
    END
    FROM (
        SELECT CASE WHEN t.xmin = pg_current_xact_id_if_assigned()::xid THEN 'granted'
            ELSE oncekey_judged_v1(t, b.nonce, b.fingerprint, moment) END AS answer,
            t AS found, b.place
        FROM unnest(p_scopes, p_keys, p_nonces, p_fingerprints) WITH ORDINALITY
            AS b (scope, key, nonce, fingerprint, place)
        LEFT JOIN oncekey_records t ON t.scope = b.scope AND t.key = b.key
    ) a
    ORDER BY a.place;
END
$$;

-- A row whose `xmax` is not 0 is locked or being changed, or was: its task asks alone.
CREATE OR REPLACE FUNCTION oncekey_settles_v1(
    p_scopes text[], p_keys text[], p_tokens bigint[], p_nonces text[], p_statuses text[],
    p_results bytea[], p_errors bytea[], p_ttls bigint[]
) RETURNS SETOF text LANGUAGE plpgsql SET lock_timeout = '100ms'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
    settled bigint[];
    watched bigint[];
BEGIN
    PERFORM oncekey_durable_v1();
    WITH done AS (
        UPDATE oncekey_records t SET
            status = a.status, result = a.result, error = a.error, uncertain = false,
            updated = moment, finished = moment, expires = moment + a.ttl,
            due = least(nullif(t.due, 0), moment + a.ttl)
        FROM unnest(
            p_scopes, p_keys, p_tokens, p_nonces, p_statuses, p_results, p_errors, p_ttls
        ) WITH ORDINALITY AS a (scope, key, token, nonce, status, result, error, ttl, place)
        WHERE t.scope = a.scope AND t.key = a.key AND t.token = a.token AND t.nonce = a.nonce
            AND t.status IN ('running', 'held') AND (t.expires = 0 OR t.expires > moment)
            AND t.version <= 1 AND t.xmax = 0
        RETURNING a.place, t.waited = t.token AS watched
    )
    SELECT array_agg(d.place), array_agg(d.place) FILTER (WHERE d.watched)
    INTO settled, watched FROM done d;
    IF watched IS NOT NULL THEN
        PERFORM oncekey_wake_v1(p_scopes[w], p_keys[w]) FROM unnest(watched) w;
    END IF;
    IF cardinality(settled) = cardinality(p_keys) THEN
        RETURN NEXT 'done';
        RETURN;
    END IF;
    RETURN QUERY SELECT CASE WHEN place = ANY (settled) THEN 'done' END
    FROM generate_series(1, cardinality(p_keys)) place ORDER BY place;
END
$$;
