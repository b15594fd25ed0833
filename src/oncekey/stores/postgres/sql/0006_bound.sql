-- The two verbs of every new key, for sessions that wait for no row longer than four seconds anyway:
-- `oncekey_claim_v2` and `oncekey_settle_v1`, which set that for each call, and pay for it.

CREATE FUNCTION oncekey_claim_v3(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text
) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    moment bigint;
    later bigint;
    answer text;
    r oncekey_records;
BEGIN
    SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scope AND t.key = p_key;
    moment := oncekey_now_v1();
    IF FOUND THEN
        answer := oncekey_judged_v1(r, p_nonce, p_fingerprint, moment);
        IF answer IS NOT NULL THEN
            RETURN record_send(ROW(answer, moment, r));
        END IF;
    ELSE
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
    END IF;
    -- It has to change, or somebody else inserted it after we looked.
    RETURN record_send(oncekey_claim_v1(
        p_scope, p_key, p_nonce, p_fingerprint, p_lease, p_ttl, p_hold, p_max_attempts, p_label,
        p_reference
    ));
END
$$;

CREATE FUNCTION oncekey_settle_v2(
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

UPDATE oncekey_schema SET version = 6;
