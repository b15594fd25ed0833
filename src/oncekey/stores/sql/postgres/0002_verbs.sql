-- The verbs, each one statement for its caller: the rules of machine.py, line by line.
--
-- A function is never changed once released: a new rule is a new function with the next number,
-- beside the old one that older releases go on calling.
-- Each locks its row first and reads the clock second, so that nothing that waited is judged by
-- an old time. Nobody waits for a row longer than five seconds.

CREATE FUNCTION oncekey_now_v1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Both known, of one version, and not the same.
CREATE FUNCTION oncekey_differ_v1(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(one <> other AND split_part(one, ':', 1) = split_part(other, ':', 1), false)
$$;

CREATE FUNCTION oncekey_expired_v1(expires bigint, moment bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT expires > 0 AND expires <= moment
$$;

-- What a claim is told while the record stays as it is; null where it has to change.
CREATE FUNCTION oncekey_told_v1(
    r oncekey_records, moment bigint, p_nonce text, p_fingerprint text
) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF r.version > 1 THEN
        RETURN 'newer';
    ELSIF oncekey_expired_v1(r.expires, moment) THEN
        RETURN NULL;
    ELSIF (r.status <> 'released' OR r.noted <> '' OR r.uncertain)
        AND oncekey_differ_v1(r.fingerprint, p_fingerprint) THEN
        RETURN 'mismatch';
    ELSIF r.status IN ('completed', 'failed') THEN
        RETURN 'replay';
    ELSIF r.status = 'held' THEN
        RETURN 'held';
    ELSIF r.nonce = p_nonce THEN
        RETURN CASE r.status WHEN 'running' THEN 'granted' ELSE 'spent' END;
    ELSIF r.status = 'running' AND moment < r.lease_end THEN
        RETURN 'busy';
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION oncekey_claim_v1(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text,
    OUT answer text, OUT moment bigint, OUT r oncekey_records
) LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    asked bigint;
    afresh boolean;
BEGIN
    LOOP
        -- Most duplicates change nothing: they take no lock and write nothing.
        SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
        IF FOUND THEN
            moment := oncekey_now_v1();
            answer := oncekey_told_v1(r, moment, p_nonce, p_fingerprint);
            EXIT WHEN answer IS NOT NULL;
            SELECT * INTO r FROM oncekey_records t
                WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
            EXIT WHEN FOUND;
            CONTINUE;  -- it was removed meanwhile
        END IF;
        asked := oncekey_now_v1();
        INSERT INTO oncekey_records VALUES (
            p_scope, p_key, 'running', p_fingerprint, asked, p_nonce, 1, asked + p_lease,
            NULL, NULL, '', 0, false, p_label, p_reference,
            asked, asked, asked, 0, asked + p_lease + greatest(p_ttl, day), 1
        ) ON CONFLICT DO NOTHING RETURNING * INTO r;
        IF FOUND THEN
            answer := 'granted';
            moment := oncekey_now_v1();
            IF moment - asked > p_lease / 10 THEN
                -- It waited for somebody who then inserted nothing: the lease starts now.
                UPDATE oncekey_records t SET
                    token = moment, lease_end = moment + p_lease, created = moment,
                    started = moment, updated = moment,
                    expires = moment + p_lease + greatest(p_ttl, day)
                WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
            ELSE
                moment := asked;
            END IF;
            RETURN;
        END IF;
        -- Somebody else inserted it after we looked: look again.
    END LOOP;
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;

    moment := oncekey_now_v1();
    answer := oncekey_told_v1(r, moment, p_nonce, p_fingerprint);
    IF answer IS NOT NULL THEN
        RETURN;
    END IF;
    afresh := oncekey_expired_v1(r.expires, moment)
        OR r.status = 'released' AND oncekey_differ_v1(r.fingerprint, p_fingerprint);
    IF NOT afresh AND r.status = 'running' THEN
        r.uncertain := true;
        r.finished := r.lease_end;
    END IF;
    IF NOT afresh AND (r.status = 'running' AND p_hold OR r.attempt >= p_max_attempts) THEN
        answer := 'held';
        UPDATE oncekey_records t SET
            status = 'held', uncertain = r.uncertain, updated = moment, finished = r.finished,
            expires = 0
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
        expires = moment + p_lease + greatest(p_ttl, day)
    WHERE t.scope = p_scope AND t.key = p_key RETURNING * INTO r;
END
$$;

-- The row of an owner's write, locked, and what is to be said at once; null: go on.
CREATE FUNCTION oncekey_owned_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text,
    OUT verdict text, OUT moment bigint, OUT r oncekey_records
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
    moment := oncekey_now_v1();
    IF r.version > 1 THEN
        verdict := 'newer';
    ELSIF r.scope IS NULL OR r.token <> p_token OR r.nonce <> p_nonce
        OR oncekey_expired_v1(r.expires, moment) THEN
        verdict := 'lost';
    END IF;
END
$$;

CREATE FUNCTION oncekey_renew_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_lease bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    o record;
BEGIN
    SELECT * INTO o FROM oncekey_owned_v1(p_scope, p_key, p_token, p_nonce);
    IF o.verdict IS NOT NULL THEN
        RETURN o.verdict;
    ELSIF (o.r).status <> 'running' THEN
        RETURN 'ended';
    END IF;
    UPDATE oncekey_records t SET
        lease_end = o.moment + p_lease, updated = o.moment,
        expires = o.moment + p_lease + greatest(p_ttl, day)
    WHERE t.scope = p_scope AND t.key = p_key;
    RETURN 'done';
END
$$;

CREATE FUNCTION oncekey_note_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_noted bytea, p_revision bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    o record;
BEGIN
    SELECT * INTO o FROM oncekey_owned_v1(p_scope, p_key, p_token, p_nonce);
    IF o.verdict IS NOT NULL THEN
        RETURN o.verdict;
    ELSIF (o.r).status NOT IN ('running', 'held') THEN
        RETURN 'ended';
    ELSIF p_revision > (o.r).revision THEN
        UPDATE oncekey_records t SET noted = p_noted, revision = p_revision, updated = o.moment
        WHERE t.scope = p_scope AND t.key = p_key;
    END IF;
    RETURN 'done';
END
$$;

CREATE FUNCTION oncekey_settle_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    o record;
BEGIN
    SELECT * INTO o FROM oncekey_owned_v1(p_scope, p_key, p_token, p_nonce);
    IF o.verdict IS NOT NULL THEN
        RETURN o.verdict;
    ELSIF (o.r).status NOT IN ('running', 'held') THEN
        RETURN CASE (o.r).status WHEN p_status THEN 'done' ELSE 'ended' END;
    END IF;
    UPDATE oncekey_records t SET
        status = p_status, result = p_result, error = p_error, uncertain = false,
        updated = o.moment, finished = o.moment, expires = o.moment + p_ttl
    WHERE t.scope = p_scope AND t.key = p_key;
    RETURN 'done';
END
$$;

CREATE FUNCTION oncekey_release_v1(
    p_scope text, p_key text, p_token bigint, p_nonce text, p_error bytea,
    p_uncertain boolean, p_hold boolean, p_unused boolean, p_lease bigint, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    hour CONSTANT bigint := 3600000000;
    becomes CONSTANT text := CASE WHEN p_hold THEN 'held' ELSE 'released' END;
    o record;
BEGIN
    SELECT * INTO o FROM oncekey_owned_v1(p_scope, p_key, p_token, p_nonce);
    IF o.verdict IS NOT NULL THEN
        RETURN o.verdict;
    ELSIF (o.r).status <> 'running' THEN
        RETURN CASE (o.r).status WHEN becomes THEN 'done' ELSE 'ended' END;
    END IF;
    UPDATE oncekey_records t SET
        status = becomes,
        error = coalesce(p_error, t.error),
        uncertain = t.uncertain OR p_uncertain,
        attempt = t.attempt - p_unused::int,
        lease_end = o.moment,
        updated = o.moment,
        -- A definite end does not move the moment since when the record has been uncertain.
        finished = CASE WHEN t.uncertain AND NOT p_uncertain THEN t.finished ELSE o.moment END,
        expires = CASE WHEN p_hold THEN 0
            WHEN t.noted <> '' THEN o.moment + p_ttl
            ELSE o.moment + greatest(p_lease, hour) END
    WHERE t.scope = p_scope AND t.key = p_key;
    RETURN 'done';
END
$$;

CREATE FUNCTION oncekey_resolve_v1(
    p_scope text, p_key text, p_token bigint, p_status text,
    p_result bytea, p_error bytea, p_ttl bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    hour CONSTANT bigint := 3600000000;
    again CONSTANT boolean := p_status = 'released';
    r oncekey_records;
    moment bigint;
BEGIN
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
    moment := oncekey_now_v1();
    IF r.version > 1 THEN
        RETURN 'newer';
    ELSIF r.scope IS NULL OR r.status <> 'held' OR r.token <> p_token THEN
        RETURN 'lost';
    END IF;
    UPDATE oncekey_records t SET
        status = p_status,
        token = greatest(t.token + 1, moment),  -- shuts the attempt out that may still be running
        attempt = CASE WHEN again THEN 0 ELSE t.attempt END,
        result = CASE WHEN again THEN t.result ELSE p_result END,
        error = CASE WHEN again THEN t.error ELSE p_error END,
        uncertain = false,
        updated = moment,
        finished = moment,
        expires = moment + CASE WHEN again THEN greatest(p_ttl, hour) ELSE p_ttl END
    WHERE t.scope = p_scope AND t.key = p_key;
    RETURN 'done';
END
$$;

CREATE FUNCTION oncekey_forget_v1(
    p_scope text, p_key text, p_token bigint, p_force boolean
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
DECLARE
    r oncekey_records;
BEGIN
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key FOR UPDATE;
    IF r.version > 1 THEN
        RETURN 'newer';
    ELSIF r.scope IS NULL THEN
        RETURN 'done';
    ELSIF NOT oncekey_expired_v1(r.expires, oncekey_now_v1())
        AND (r.token <> p_token OR r.status IN ('running', 'held') AND NOT p_force) THEN
        RETURN 'lost';
    END IF;
    DELETE FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
    RETURN 'done';
END
$$;

-- What somebody holds just now is left for the next time.
CREATE FUNCTION oncekey_purge_v1(p_grace bigint, p_limit bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH due AS MATERIALIZED (
        SELECT d.scope, d.key FROM oncekey_records d
        WHERE d.expires > 0 AND d.expires <= (SELECT oncekey_now_v1() - p_grace)
        ORDER BY d.expires LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM oncekey_records t USING due
        WHERE t.scope = due.scope AND t.key = due.key RETURNING 1
    )
    SELECT count(*) FROM gone
$$;

UPDATE oncekey_schema SET version = 2, oldest = 2;
