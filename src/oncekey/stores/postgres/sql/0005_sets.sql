-- A crowd is served as a whole: one INSERT for all its claims, one UPDATE for all its settles.
--
-- Claims are answered in binary form: the moment alone where the record is new, because the asker
-- knows everything else that stands in it; otherwise what `oncekey_claim_v1` answers.

-- The two ways that most claims go are short: nothing is there, or nothing has to change.
CREATE FUNCTION oncekey_claim_v2(
    p_scope text, p_key text, p_nonce text, p_fingerprint text, p_lease bigint, p_ttl bigint,
    p_hold boolean, p_max_attempts bigint, p_label text, p_reference text
) RETURNS bytea LANGUAGE plpgsql SET lock_timeout = '4s' AS $$
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

-- As in `oncekey_claims_v1` nobody waits long for a stranger, rows come in the order of scope and
-- key and none twice, and what fails, fails as a whole. One answer stands for all if it is the same
-- for all; otherwise each has its own, and null sends its asker to ask alone.
--
-- The plans are kept for as long as a session lasts, and may be made while the table is empty: they
-- go by the primary key, whatever looks cheaper then.

CREATE FUNCTION oncekey_claims_v2(
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
    -- A crowd that was held up would hand out leases that are partly over.
    IF oncekey_now_v1() - moment > (SELECT min(lease) FROM unnest(p_leases) lease) / 10 THEN
        RAISE lock_not_available USING MESSAGE = 'the crowd was held up';
    END IF;
    IF granted = cardinality(p_keys) THEN
        RETURN NEXT int8send(moment);
        RETURN;
    END IF;
    -- Those who were granted theirs are found by their nonce.
    RETURN QUERY SELECT CASE WHEN a.answer IS NOT NULL THEN
        record_send(ROW(a.answer, moment, a.found))
    END
    FROM (
        SELECT oncekey_judged_v1(t, b.nonce, b.fingerprint, moment) AS answer, t AS found, b.place
        FROM unnest(p_scopes, p_keys, p_nonces, p_fingerprints) WITH ORDINALITY
            AS b (scope, key, nonce, fingerprint, place)
        LEFT JOIN oncekey_records t ON t.scope = b.scope AND t.key = b.key
    ) a
    ORDER BY a.place;
END
$$;

-- A row whose `xmax` is not 0 is locked or being changed, or was: its asker asks alone.
CREATE FUNCTION oncekey_settles_v2(
    p_scopes text[], p_keys text[], p_tokens bigint[], p_nonces text[], p_statuses text[],
    p_results bytea[], p_errors bytea[], p_ttls bigint[]
) RETURNS SETOF text LANGUAGE plpgsql SET lock_timeout = '100ms'
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment CONSTANT bigint := oncekey_now_v1();
    settled bigint[];
    watched bigint[];
BEGIN
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

UPDATE oncekey_schema SET version = 5;
