-- The verbs, each one statement for its caller: the rules of machine.py, line by line.
--
-- A function is never changed once released: a new rule is a new function with the next number,
-- beside the old one that older releases go on calling.
-- Nobody waits for a row longer than four seconds, which is less than a client waits for us.

CREATE FUNCTION oncekey_now_v1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Both known, of one version, and not the same.
CREATE FUNCTION oncekey_differ_v1(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(one <> other AND split_part(one, ':', 1) = split_part(other, ':', 1), false)
$$;

-- Those who wait for this record are told that it has changed. Nothing is sent where nobody waits.
CREATE FUNCTION oncekey_wake_v1(p_scope text, p_key text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('oncekey_' || left(encode(sha256(named), 'hex'), 48), '')
    FROM convert_to(p_scope || chr(10) || p_key, 'UTF8') AS named
$$;

-- `r` is null where the record is new: the asker knows everything that stands in it but the moment.
CREATE FUNCTION oncekey_claim_v1(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text,
    OUT answer text, OUT moment bigint, OUT r oncekey_records
) LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    locked boolean := false;
    afresh boolean;
    asked bigint;
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

        IF NOT FOUND THEN
            INSERT INTO oncekey_records (
                scope, key, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
                uncertain, label, reference, created, started, updated, finished, expires, version,
                due
            ) VALUES (
                p_scope, p_key, 'running', p_fingerprint, moment, p_nonce, 1, moment + p_lease, '',
                0, false, p_label, p_reference, moment, moment, moment, 0,
                moment + p_lease + greatest(p_ttl, day), 1, moment + p_ttl
            ) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                locked := false;
                CONTINUE;  -- somebody else inserted it after we looked
            END IF;
            asked := moment;
            moment := oncekey_now_v1();
            IF moment - asked > p_lease / 10 THEN
                -- It waited for somebody who then inserted nothing: the lease starts now.
                UPDATE oncekey_records t SET
                    token = moment, lease_end = moment + p_lease, created = moment,
                    started = moment, updated = moment,
                    expires = moment + p_lease + greatest(p_ttl, day), due = moment + p_ttl
                WHERE t.scope = p_scope AND t.key = p_key;
            ELSE
                moment := asked;
            END IF;
            answer := 'granted';
            r := NULL;
            RETURN;
        END IF;

        IF r.version > 1 THEN
            answer := 'newer';
        ELSIF r.expires > 0 AND r.expires <= moment THEN
            answer := NULL;
        ELSIF (r.status <> 'released' OR r.noted <> '' OR r.uncertain)
            AND oncekey_differ_v1(r.fingerprint, p_fingerprint) THEN
            answer := 'mismatch';
        ELSIF r.status IN ('completed', 'failed') THEN
            answer := 'replay';
        ELSIF r.status = 'held' THEN
            answer := 'held';
        ELSIF r.nonce = p_nonce THEN
            answer := CASE r.status WHEN 'running' THEN 'granted' ELSE 'spent' END;
        ELSIF r.status = 'running' AND moment < r.lease_end THEN
            answer := 'busy';
        ELSE
            answer := NULL;
        END IF;
        IF answer IS NOT NULL THEN
            RETURN;
        END IF;
        EXIT WHEN locked;
        locked := true;  -- it has to change: look again, and let nobody else in
    END LOOP;

    IF r.status = 'running' AND r.waited = r.token THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    afresh := r.expires > 0 AND r.expires <= moment
        OR r.status = 'released' AND oncekey_differ_v1(r.fingerprint, p_fingerprint);
    IF NOT afresh AND r.status = 'running' THEN
        r.uncertain := true;
        r.finished := r.lease_end;
    END IF;
    IF NOT afresh AND (r.status = 'running' AND p_hold OR r.attempt >= p_max_attempts) THEN
        answer := 'held';
        UPDATE oncekey_records t SET
            status = 'held', uncertain = r.uncertain, updated = moment, finished = r.finished,
            expires = 0, due = 0
        WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
        RETURN;
    END IF;
    answer := 'granted';
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
        expires = moment + p_lease + greatest(p_ttl, day),
        due = moment + p_ttl
    WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
END
$$;

-- The writes of an owner are one UPDATE each, with the proof in its WHERE. Time is read before it:
-- a write that had to wait for the row is dated when it was asked for, and its lease or life is
-- shorter by that, never longer.

-- What an owner is told whose UPDATE found nothing: `done` where the record is as it was to become.
CREATE FUNCTION oncekey_refused_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_same text[]
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r oncekey_records;
BEGIN
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
    IF r.version > 1 THEN
        RETURN 'newer';
    ELSIF r.scope IS NULL OR r.token <> p_token OR r.nonce <> p_nonce
        OR r.expires > 0 AND r.expires <= oncekey_now_v1() THEN
        RETURN 'lost';
    END IF;
    RETURN CASE WHEN r.status = ANY (p_same) THEN 'done' ELSE 'ended' END;
END
$$;

CREATE FUNCTION oncekey_renew_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_lease bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    moment CONSTANT bigint := oncekey_now_v1();
    until CONSTANT bigint := moment + p_lease + greatest(p_ttl, day);
BEGIN
    UPDATE oncekey_records t SET
        lease_end = moment + p_lease, updated = moment, expires = until, due = least(t.due, until)
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND t.status = 'running' AND t.expires > moment AND t.version <= 1;
    IF FOUND THEN
        RETURN 'done';
    END IF;
    RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, '{}');
END
$$;

CREATE FUNCTION oncekey_note_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_noted bytea, p_revision bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
BEGIN
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

CREATE FUNCTION oncekey_settle_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
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

CREATE FUNCTION oncekey_release_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_error bytea,
    p_uncertain boolean, p_hold boolean, p_unused boolean, p_lease bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    hour CONSTANT bigint := 3600000000;
    moment CONSTANT bigint := oncekey_now_v1();
    becomes CONSTANT text := CASE WHEN p_hold THEN 'held' ELSE 'released' END;
    watched boolean;
BEGIN
    UPDATE oncekey_records t SET
        status = becomes,
        error = coalesce(p_error, t.error),
        uncertain = t.uncertain OR p_uncertain,
        attempt = t.attempt - p_unused::int,
        lease_end = moment,
        updated = moment,
        -- A definite end does not move the moment since when the record has been uncertain.
        finished = CASE WHEN t.uncertain AND NOT p_uncertain THEN t.finished ELSE moment END,
        expires = CASE WHEN p_hold THEN 0
            WHEN t.noted <> '' THEN moment + p_ttl
            ELSE moment + greatest(p_lease, hour) END,
        due = CASE WHEN p_hold THEN 0
            ELSE least(t.due, moment + least(p_ttl, greatest(p_lease, hour))) END
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token AND t.nonce = p_nonce
        AND t.status = 'running' AND t.expires > moment AND t.version <= 1
    RETURNING t.waited = p_token INTO watched;
    IF watched THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    IF watched IS NOT NULL THEN
        RETURN 'done';
    END IF;
    RETURN oncekey_refused_v1(p_scope, p_key, p_token, p_nonce, ARRAY[becomes]);
END
$$;

CREATE FUNCTION oncekey_resolve_v1(
    p_scope text, p_key text, p_token bigint, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    hour CONSTANT bigint := 3600000000;
    again CONSTANT boolean := p_status = 'released';
    moment CONSTANT bigint := oncekey_now_v1();
    until CONSTANT bigint := moment + CASE WHEN again THEN greatest(p_ttl, hour) ELSE p_ttl END;
    newer boolean;
BEGIN
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
        due = until
    WHERE t.scope = p_scope AND t.key = p_key AND t.token = p_token
        AND t.status = 'held' AND t.version <= 1;
    IF FOUND THEN
        RETURN 'done';
    END IF;
    SELECT t.version > 1 INTO newer FROM oncekey_records t
        WHERE t.scope = p_scope AND t.key = p_key;
    RETURN CASE WHEN newer THEN 'newer' ELSE 'lost' END;
END
$$;

CREATE FUNCTION oncekey_forget_v1(
    p_scope text, p_key text, p_token bigint, p_force boolean
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
DECLARE
    r oncekey_records;
BEGIN
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
    IF r.status = 'running' AND r.waited = r.token THEN
        PERFORM oncekey_wake_v1(p_scope, p_key);
    END IF;
    RETURN 'done';
END
$$;

-- How long the attempt may still run, in microseconds, with a mark that somebody waits for its end;
-- 0 when it does not run any more. The mark need not survive a crash, nor wait for the disk.
CREATE FUNCTION oncekey_watch_v1(p_scope text, p_key text, p_token bigint) RETURNS bigint
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
CREATE FUNCTION oncekey_purge_v1(p_grace bigint, p_limit bigint) RETURNS bigint
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

UPDATE oncekey_schema SET version = 2, oldest = 2;
