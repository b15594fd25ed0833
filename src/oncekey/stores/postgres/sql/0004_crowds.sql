-- Many claims, or many settles, in one statement and one commit, for the tasks of one event loop.
--
-- Nobody in a crowd waits for a row that somebody else holds: it is answered with null, and its
-- asker asks alone. Rows come in the order of scope and key, and none twice: so no two crowds wait
-- for each other. What fails, fails as a whole, and everybody asks alone.

-- What a claim is told that changes nothing, by the rules of `oncekey_claim_v1`; null if it must.
CREATE FUNCTION oncekey_judged_v1(
    r oncekey_records, p_nonce text, p_fingerprint text, p_moment bigint
) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN r.version > 1 OR r.expires > 0 AND r.expires <= p_moment THEN NULL
        WHEN (r.status <> 'released' OR r.noted <> '' OR r.uncertain)
            AND oncekey_differ_v1(r.fingerprint, p_fingerprint) THEN 'mismatch'
        WHEN r.status IN ('completed', 'failed') THEN 'replay'
        WHEN r.status = 'held' THEN 'held'
        WHEN r.nonce = p_nonce THEN CASE r.status WHEN 'running' THEN 'granted' ELSE 'spent' END
        WHEN r.status = 'running' AND p_moment < r.lease_end THEN 'busy'
    END
$$;

CREATE FUNCTION oncekey_claims_v1(
    p_scopes text[], p_keys text[], p_nonces text[], p_fingerprints text[], p_leases bigint[],
    p_ttls bigint[], p_holds boolean[], p_max_attempts bigint[], p_labels text[],
    p_references text[],
    OUT answer text, OUT moment bigint, OUT r oncekey_records
) RETURNS SETOF record LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
    day CONSTANT bigint := 86400000000;
    began CONSTANT bigint := oncekey_now_v1();
BEGIN
    FOR n IN 1 .. cardinality(p_keys) LOOP
        moment := oncekey_now_v1();
        SELECT * INTO r FROM oncekey_records t WHERE t.scope = p_scopes[n] AND t.key = p_keys[n];
        IF FOUND THEN
            answer := oncekey_judged_v1(r, p_nonces[n], p_fingerprints[n], moment);
        ELSE
            INSERT INTO oncekey_records (
                scope, key, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
                uncertain, label, reference, created, started, updated, finished, expires, version,
                due
            ) VALUES (
                p_scopes[n], p_keys[n], 'running', p_fingerprints[n], moment, p_nonces[n], 1,
                moment + p_leases[n], '', 0, false, p_labels[n], p_references[n], moment, moment,
                moment, 0, moment + p_leases[n] + greatest(p_ttls[n], day), 1, moment + p_ttls[n]
            ) ON CONFLICT DO NOTHING;
            answer := CASE WHEN FOUND THEN 'granted' END;
            r := NULL;
        END IF;
        RETURN NEXT;
    END LOOP;
    -- A crowd that was held up would hand out leases that are partly over.
    IF oncekey_now_v1() - began > (SELECT min(lease) FROM unnest(p_leases) lease) / 10 THEN
        RAISE lock_not_available USING MESSAGE = 'the crowd was held up';
    END IF;
END
$$;

CREATE FUNCTION oncekey_settles_v1(
    p_scopes text[], p_keys text[], p_tokens bigint[], p_nonces text[], p_statuses text[],
    p_results bytea[], p_errors bytea[], p_ttls bigint[]
) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1 .. cardinality(p_keys) LOOP
        PERFORM 1 FROM oncekey_records t
            WHERE t.scope = p_scopes[n] AND t.key = p_keys[n] FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN NEXT oncekey_settle_v1(
                p_scopes[n], p_keys[n], p_tokens[n], p_nonces[n], p_statuses[n], p_results[n],
                p_errors[n], p_ttls[n]
            );
        ELSE
            RETURN NEXT NULL;
        END IF;
    END LOOP;
END
$$;

UPDATE oncekey_schema SET version = 4;
