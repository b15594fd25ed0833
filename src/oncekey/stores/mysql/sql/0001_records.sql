-- The schema of the first release. It is edited in place until there is one. From then on no
-- procedure is changed: a new rule is a new procedure with the next number, in a new file, beside
-- the old one that older releases go on calling.
--
-- Every statement here may run twice: MySQL commits each one by itself, so that a migration that
-- was cut off is done again from its start. The version comes last. `mariadb < this file` works too.

DELIMITER //

-- One row per scope and key. Times are microseconds; 0 stands for not yet, or never. No scope is
-- the empty text, which no scope can be. Everything that is compared is compared byte by byte.
CREATE TABLE IF NOT EXISTS oncekey_records (
    scope       VARBINARY(1020) NOT NULL,
    `key`       VARBINARY(1020) NOT NULL,
    status      VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fingerprint VARBINARY(255),
    token       BIGINT NOT NULL,
    nonce       VARBINARY(255) NOT NULL,
    attempt     BIGINT NOT NULL,
    lease_end   BIGINT NOT NULL,
    result      LONGBLOB,
    error       LONGBLOB,
    noted       LONGBLOB NOT NULL,
    revision    BIGINT NOT NULL,
    uncertain   BOOLEAN NOT NULL,
    label       MEDIUMBLOB NOT NULL,
    reference   MEDIUMBLOB NOT NULL,
    created     BIGINT NOT NULL,
    started     BIGINT NOT NULL,
    updated     BIGINT NOT NULL,
    finished    BIGINT NOT NULL,
    expires     BIGINT NOT NULL,
    version     INT NOT NULL,
    -- Who resolved it by hand, when and why: the time and the entry of the audit trail.
    hand        MEDIUMBLOB NOT NULL,
    -- Not part of the record. It expires no sooner than `due`, 0: never. `expires` moves with every
    -- write, `due` stands still from claim to settle, so that a settle changes no index.
    due         BIGINT NOT NULL,
    -- How often an answer was given again. InnoDB writes nothing for a row that stays as it was, and
    -- such a commit would wait for no replica.
    again       INT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, `key`),
    -- What purge looks for; only held records are never due.
    INDEX oncekey_records_due (due, created),
    -- What people who look at records go by: the newest first.
    INDEX oncekey_records_created (created)
) ENGINE = InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin
//

-- What people did by hand, with the time. It outlives the records.
CREATE TABLE IF NOT EXISTS oncekey_audit (
    id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at    BIGINT NOT NULL,
    entry MEDIUMBLOB NOT NULL
) ENGINE = InnoDB
//

-- How many calls there were, for the charts: 372 slots that are used in turn, each for `width`
-- microseconds from `at` on.
CREATE TABLE IF NOT EXISTS oncekey_activity (
    place      BIGINT NOT NULL PRIMARY KEY,
    width      BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    new        BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    held       BIGINT NOT NULL,
    errors     BIGINT NOT NULL
) ENGINE = InnoDB
//

-- How many migrations this schema has seen, and the fewest that a release must know to use it.
-- One row. Only a migration that takes something away raises `oldest`.
CREATE TABLE IF NOT EXISTS oncekey_schema (
    one     INT NOT NULL DEFAULT 1 PRIMARY KEY,
    version INT NOT NULL,
    oldest  INT NOT NULL
) ENGINE = InnoDB
//

-- The verbs, each one CALL for its caller: the rules of machine.py, line by line. A procedure under
-- autocommit commits statement by statement, so that each begins a transaction, and its answer is
-- selected after the commit. SYSDATE(6) is the moment, in the time zone of the session, which is
-- UTC; NOW(6) would be when the call began, before it waited for the row.

-- Begin a transaction in which something may change. A user with every right may write to a
-- replica, and what is written there is lost.
DROP PROCEDURE IF EXISTS oncekey_begin_v1
//
CREATE PROCEDURE oncekey_begin_v1() SQL SECURITY INVOKER
BEGIN
    IF CONCAT(@@global.read_only) NOT IN ('0', 'OFF') THEN
        SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read_only is on';
    END IF;
    IF @@session.time_zone <> '+00:00' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the time zone of the session was changed';
    END IF;
    -- A connection that an engine of SQLAlchemy lends does not commit by itself, so that what was read
    -- has begun a transaction, and it has the isolation that the application wants.
    IF NOT @@session.autocommit THEN
        COMMIT;
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
END
//

-- The answer to a claim is the moment alone where the record is new, because the caller knows
-- everything else that stands in it; otherwise the answer, the moment and the record.
DROP PROCEDURE IF EXISTS oncekey_claim_v1
//
CREATE PROCEDURE oncekey_claim_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_nonce VARBINARY(255),
    p_fingerprint VARBINARY(255), p_lease BIGINT, p_ttl BIGINT, p_hold BOOLEAN,
    p_max_attempts BIGINT, p_label MEDIUMBLOB, p_reference MEDIUMBLOB
) SQL SECURITY INVOKER
claiming: BEGIN
    DECLARE day BIGINT DEFAULT 86400000000;
    DECLARE found, locked, taken, afresh, other BOOLEAN DEFAULT FALSE;
    DECLARE moment, later BIGINT;
    DECLARE answer VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_fingerprint, r_nonce VARBINARY(255);
    DECLARE r_label MEDIUMBLOB;
    DECLARE r_reference MEDIUMBLOB;
    DECLARE r_result, r_error, r_noted LONGBLOB;
    DECLARE r_hand MEDIUMBLOB;
    DECLARE r_uncertain BOOLEAN;
    DECLARE r_token, r_attempt, r_lease_end, r_revision, r_created, r_started, r_updated, r_finished,
        r_expires, r_version, r_due BIGINT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET found = FALSE;
    DECLARE CONTINUE HANDLER FOR 1062 SET taken = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

    looking: LOOP
        SET found = TRUE;
        -- Most duplicates change nothing: they take no lock and write nothing.
        IF locked THEN
            CALL oncekey_begin_v1();
            SELECT status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
                revision, uncertain, label, reference, created, started, updated, finished, expires,
                version, hand, due
            INTO r_status, r_fingerprint, r_token, r_nonce, r_attempt, r_lease_end, r_result,
                r_error, r_noted, r_revision, r_uncertain, r_label, r_reference, r_created,
                r_started, r_updated, r_finished, r_expires, r_version, r_hand, r_due
            FROM oncekey_records WHERE scope = p_scope AND `key` = p_key FOR UPDATE;
        ELSE
            SELECT status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
                revision, uncertain, label, reference, created, started, updated, finished, expires,
                version, hand, due
            INTO r_status, r_fingerprint, r_token, r_nonce, r_attempt, r_lease_end, r_result,
                r_error, r_noted, r_revision, r_uncertain, r_label, r_reference, r_created,
                r_started, r_updated, r_finished, r_expires, r_version, r_hand, r_due
            FROM oncekey_records WHERE scope = p_scope AND `key` = p_key;
        END IF;
        SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));  -- after the lock
        IF found THEN
            SET afresh = r_expires > 0 AND r_expires <= moment;
            SET other = COALESCE(r_fingerprint <> p_fingerprint AND
                SUBSTRING_INDEX(r_fingerprint, ':', 1) = SUBSTRING_INDEX(p_fingerprint, ':', 1),
                FALSE);
            SET answer = CASE
                WHEN r_version > 1 THEN 'newer'
                WHEN afresh THEN NULL
                WHEN other AND (r_status <> 'released' OR r_noted <> '' OR r_uncertain)
                    THEN 'mismatch'
                WHEN r_status IN ('completed', 'failed') THEN 'replay'
                WHEN r_status = 'held' THEN 'held'
                WHEN r_nonce = p_nonce THEN CASE r_status WHEN 'released' THEN 'spent' END
                WHEN r_status = 'running' AND moment < r_lease_end THEN 'busy'
            END;
            IF answer IS NOT NULL OR locked THEN
                LEAVE looking;
            END IF;
            SET locked = TRUE;  -- it has to change: look again, and let nobody else in
        ELSE
            IF locked THEN
                ROLLBACK;
            END IF;
            SET locked = FALSE, taken = FALSE;
            CALL oncekey_begin_v1();
            SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
            INSERT INTO oncekey_records (
                scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
                uncertain, label, reference, created, started, updated, finished, expires, version,
                hand, due
            ) VALUES (
                p_scope, p_key, 'running', p_fingerprint, moment, p_nonce, 1, moment + p_lease, '',
                0, FALSE, p_label, p_reference, moment, moment, moment, 0,
                moment + p_lease + GREATEST(p_ttl, day), 1, '', moment + p_ttl
            );
            IF NOT taken THEN
                SET later = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
                IF later - moment > p_lease DIV 10 THEN
                    -- It waited for somebody who then removed the row: the lease starts now.
                    SET moment = later;
                    UPDATE oncekey_records SET
                        token = moment, lease_end = moment + p_lease, created = moment,
                        started = moment, updated = moment,
                        expires = moment + p_lease + GREATEST(p_ttl, day), due = moment + p_ttl
                    WHERE scope = p_scope AND `key` = p_key;
                END IF;
                COMMIT;
                SELECT moment;
                LEAVE claiming;
            END IF;
            ROLLBACK;  -- somebody else inserted it after we looked
        END IF;
    END LOOP;

    IF answer IS NULL AND r_status = 'running' AND r_nonce = p_nonce AND NOT afresh THEN
        -- The owner asks again. Its claim may be on this server alone, because the server stopped
        -- waiting for its replicas. The commit of this write waits for them.
        UPDATE oncekey_records SET again = again + 1 WHERE scope = p_scope AND `key` = p_key;
        SET answer = 'granted';
    ELSEIF answer IS NULL THEN
        SET afresh = afresh OR (r_status = 'released' AND other);
        IF NOT afresh AND r_status = 'running' THEN
            SET r_uncertain = TRUE, r_finished = r_lease_end;
        END IF;
        IF NOT afresh AND (
            r_status = 'running' AND p_hold OR COALESCE(r_attempt >= p_max_attempts, FALSE)
        ) THEN
            SET answer = 'held', r_status = 'held', r_updated = moment, r_expires = 0;
            UPDATE oncekey_records SET
                status = 'held', uncertain = r_uncertain, updated = moment, finished = r_finished,
                expires = 0, due = 0
            WHERE scope = p_scope AND `key` = p_key;
        ELSE
            IF afresh THEN
                SET r_fingerprint = p_fingerprint, r_attempt = 0, r_result = NULL, r_error = NULL,
                    r_noted = '', r_revision = 0, r_uncertain = FALSE, r_label = '',
                    r_reference = '', r_created = moment, r_finished = 0, r_hand = '';
            END IF;
            SET answer = 'granted', r_status = 'running',
                r_fingerprint = COALESCE(p_fingerprint, r_fingerprint),
                r_token = GREATEST(r_token + 1, moment), r_nonce = p_nonce,
                r_attempt = r_attempt + 1, r_lease_end = moment + p_lease,
                r_label = IF(p_label = '', r_label, p_label),
                r_reference = IF(p_reference = '', r_reference, p_reference),
                r_started = moment, r_updated = moment,
                r_expires = GREATEST(
                    moment + p_lease + GREATEST(p_ttl, day), IF(r_uncertain, r_expires, 0)
                );
            UPDATE oncekey_records SET
                status = r_status, fingerprint = r_fingerprint, token = r_token, nonce = r_nonce,
                attempt = r_attempt, lease_end = r_lease_end, result = r_result, error = r_error,
                noted = r_noted, revision = r_revision, uncertain = r_uncertain, label = r_label,
                reference = r_reference, created = r_created, started = r_started,
                updated = r_updated, finished = r_finished, expires = r_expires, hand = r_hand,
                due = moment + p_ttl
            WHERE scope = p_scope AND `key` = p_key;
        END IF;
    END IF;
    COMMIT;  -- of what was read, too: a connection that was lent does not commit by itself
    SELECT answer, moment, p_scope, p_key, r_status, r_fingerprint, r_token, r_nonce, r_attempt,
        r_lease_end, r_result, r_error, r_noted, r_revision, r_uncertain, r_label, r_reference,
        r_created, r_started, r_updated, r_finished, r_expires, r_version, r_hand;
END
//

-- The writes of an owner. Each locks the row, reads the clock, judges and writes. What is already as
-- it was to become is written once more, for the replicas.

DROP PROCEDURE IF EXISTS oncekey_renew_v1
//
CREATE PROCEDURE oncekey_renew_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_nonce VARBINARY(255),
    p_lease BIGINT, p_ttl BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment, until_then, r_expires, r_due BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_uncertain BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    CALL oncekey_owned_v1(
        p_scope, p_key, p_token, p_nonce, verdict, moment, r_status, r_uncertain, r_expires, r_due
    );
    IF verdict IS NULL AND r_status <> 'running' THEN
        SET verdict = 'ended';
    ELSEIF verdict IS NULL THEN
        SET until_then = moment + p_lease + GREATEST(p_ttl, 86400000000);
        UPDATE oncekey_records SET
            lease_end = moment + p_lease, updated = moment, due = LEAST(due, until_then),
            expires = GREATEST(until_then, IF(r_uncertain, r_expires, 0)), again = again + 1
        WHERE scope = p_scope AND `key` = p_key;
        SET verdict = 'done';
    END IF;
    COMMIT;
    SELECT verdict;
END
//

-- Lock the row and read the clock. The verdict stays null if the caller owns the record.
DROP PROCEDURE IF EXISTS oncekey_owned_v1
//
CREATE PROCEDURE oncekey_owned_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_nonce VARBINARY(255),
    OUT verdict VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin, OUT moment BIGINT,
    OUT r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin, OUT r_uncertain BOOLEAN,
    OUT r_expires BIGINT, OUT r_due BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE r_token, r_version BIGINT;
    DECLARE r_nonce VARBINARY(255);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET verdict = 'lost';
    SET verdict = NULL;
    SELECT token, nonce, version, status, uncertain, expires, due
    INTO r_token, r_nonce, r_version, r_status, r_uncertain, r_expires, r_due
    FROM oncekey_records WHERE scope = p_scope AND `key` = p_key FOR UPDATE;
    SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    IF r_version > 1 THEN
        SET verdict = 'newer';
    ELSEIF r_token <> p_token OR r_nonce <> p_nonce OR r_expires > 0 AND r_expires <= moment THEN
        SET verdict = 'lost';
    END IF;
END
//

DROP PROCEDURE IF EXISTS oncekey_note_v1
//
CREATE PROCEDURE oncekey_note_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_nonce VARBINARY(255),
    p_noted LONGBLOB, p_revision BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment, r_expires, r_due BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_uncertain BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    CALL oncekey_owned_v1(
        p_scope, p_key, p_token, p_nonce, verdict, moment, r_status, r_uncertain, r_expires, r_due
    );
    IF verdict IS NULL AND r_status NOT IN ('running', 'held') THEN
        SET verdict = 'ended';
    ELSEIF verdict IS NULL THEN
        -- Notes that are older than those kept already change nothing, and are no mistake.
        UPDATE oncekey_records SET
            noted = IF(revision < p_revision, p_noted, noted),
            updated = IF(revision < p_revision, moment, updated),
            revision = GREATEST(revision, p_revision), again = again + 1
        WHERE scope = p_scope AND `key` = p_key;
        SET verdict = 'done';
    END IF;
    COMMIT;
    SELECT verdict;
END
//

DROP PROCEDURE IF EXISTS oncekey_settle_v1
//
CREATE PROCEDURE oncekey_settle_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_nonce VARBINARY(255),
    p_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin, p_result LONGBLOB, p_error LONGBLOB,
    p_ttl BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment, r_expires, r_due BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_uncertain BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    settling: LOOP
        -- One statement for what nearly every settle does. It judges the row when it has locked it.
        UPDATE oncekey_records SET
            status = p_status, result = p_result, error = p_error, uncertain = FALSE,
            updated = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), finished = updated,
            expires = updated + p_ttl, due = IF(due = 0, expires, LEAST(due, expires))
        WHERE scope = p_scope AND `key` = p_key AND token = p_token AND nonce = p_nonce
            AND status IN ('running', 'held') AND version <= 1 AND (
                expires = 0 OR expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))
            );
        IF ROW_COUNT() = 1 THEN
            SET verdict = 'done';
            LEAVE settling;
        END IF;
        CALL oncekey_owned_v1(
            p_scope, p_key, p_token, p_nonce, verdict, moment, r_status, r_uncertain, r_expires,
            r_due
        );
        IF verdict IS NULL AND r_status = p_status THEN
            UPDATE oncekey_records SET again = again + 1 WHERE scope = p_scope AND `key` = p_key;
            SET verdict = 'done';
        ELSEIF verdict IS NULL AND r_status NOT IN ('running', 'held') THEN
            SET verdict = 'ended';
        END IF;
        IF verdict IS NOT NULL THEN
            LEAVE settling;
        END IF;
    END LOOP;
    COMMIT;
    SELECT verdict;
END
//

DROP PROCEDURE IF EXISTS oncekey_release_v1
//
CREATE PROCEDURE oncekey_release_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_nonce VARBINARY(255),
    p_error LONGBLOB, p_uncertain BOOLEAN, p_hold BOOLEAN, p_unused BOOLEAN, p_counted BOOLEAN,
    p_bare_ttl BIGINT, p_ttl BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE becomes VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin
        DEFAULT IF(p_hold, 'held', 'released');
    DECLARE moment, until_then, r_expires, r_due, r_attempt BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE r_uncertain, left_uncertain, r_noted BOOLEAN;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    CALL oncekey_owned_v1(
        p_scope, p_key, p_token, p_nonce, verdict, moment, r_status, r_uncertain, r_expires, r_due
    );
    IF verdict IS NULL AND (
        r_status = 'running' OR r_status = 'held' AND NOT p_uncertain AND NOT p_hold
    ) THEN
        SELECT attempt, noted <> '' INTO r_attempt, r_noted
        FROM oncekey_records WHERE scope = p_scope AND `key` = p_key;
        -- What made a first attempt uncertain can only be the end of its lease.
        SET left_uncertain =
            p_uncertain OR r_uncertain AND NOT (r_status = 'held' AND r_attempt <= 1);
        SET r_attempt = GREATEST(0, r_attempt - p_unused);
        SET until_then = 0;
        IF NOT p_hold THEN
            SET until_then = GREATEST(
                moment + IF(
                    r_noted OR left_uncertain OR p_counted AND r_attempt > 0,
                    GREATEST(p_ttl, 86400000000), p_bare_ttl
                ),
                IF(r_uncertain, r_expires, 0)
            );
        END IF;
        UPDATE oncekey_records SET
            status = becomes, error = COALESCE(p_error, error), uncertain = left_uncertain,
            attempt = r_attempt, lease_end = moment, updated = moment,
            -- A definite end does not move the moment since when the record has been uncertain.
            finished = IF(left_uncertain AND NOT p_uncertain, finished, moment),
            expires = until_then,
            due = IF(p_hold OR r_status = 'held', until_then, LEAST(r_due, until_then))
        WHERE scope = p_scope AND `key` = p_key;
        SET verdict = 'done';
    ELSEIF verdict IS NULL AND r_status = becomes THEN
        UPDATE oncekey_records SET again = again + 1 WHERE scope = p_scope AND `key` = p_key;
        SET verdict = 'done';
    ELSEIF verdict IS NULL THEN
        SET verdict = 'ended';
    END IF;
    COMMIT;
    SELECT verdict;
END
//

-- Add an entry to the audit trail, and remove the oldest ones. The caller commits.
DROP PROCEDURE IF EXISTS oncekey_add_audit_v1
//
CREATE PROCEDURE oncekey_add_audit_v1(p_entry MEDIUMBLOB) SQL SECURITY INVOKER
BEGIN
    INSERT INTO oncekey_audit (at, entry)
    VALUES (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)), p_entry);
    DELETE FROM oncekey_audit WHERE id + 10000 <= LAST_INSERT_ID();
END
//

DROP PROCEDURE IF EXISTS oncekey_audit_v1
//
CREATE PROCEDURE oncekey_audit_v1(p_entry MEDIUMBLOB) SQL SECURITY INVOKER
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    CALL oncekey_add_audit_v1(p_entry);
    COMMIT;
    SELECT 'done';
END
//

DROP PROCEDURE IF EXISTS oncekey_audited_v1
//
CREATE PROCEDURE oncekey_audited_v1(p_limit BIGINT) SQL SECURITY INVOKER
BEGIN
    SELECT at, entry FROM oncekey_audit ORDER BY id DESC LIMIT p_limit;
    COMMIT;
END
//

DROP PROCEDURE IF EXISTS oncekey_resolve_v1
//
CREATE PROCEDURE oncekey_resolve_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT,
    p_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin, p_result LONGBLOB, p_error LONGBLOB,
    p_ttl BIGINT, p_audit MEDIUMBLOB
) SQL SECURITY INVOKER
BEGIN
    DECLARE retry BOOLEAN DEFAULT p_status = 'released';
    DECLARE moment, until_then, r_token, r_version BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET verdict = 'lost';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    SELECT status, token, version INTO r_status, r_token, r_version
    FROM oncekey_records WHERE scope = p_scope AND `key` = p_key FOR UPDATE;
    SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    IF r_version > 1 THEN
        SET verdict = 'newer';
    ELSEIF r_status <> 'held' OR r_token <> p_token THEN
        SET verdict = 'lost';
    ELSEIF verdict IS NULL THEN
        SET until_then = moment + IF(retry, GREATEST(p_ttl, 86400000000), p_ttl);
        UPDATE oncekey_records SET
            status = p_status,
            token = GREATEST(r_token + 1, moment),  -- shuts the attempt out that may still be running
            attempt = IF(retry, 0, attempt),
            result = IF(retry, result, p_result),
            error = IF(retry, error, p_error),
            uncertain = FALSE,
            updated = moment,
            finished = moment,
            expires = until_then,
            due = until_then,
            hand = IF(p_audit = '', hand, CONCAT(UNHEX(LPAD(HEX(moment), 16, '0')), p_audit))
        WHERE scope = p_scope AND `key` = p_key;
        IF p_audit <> '' THEN
            CALL oncekey_add_audit_v1(p_audit);
        END IF;
        SET verdict = 'done';
    END IF;
    COMMIT;
    SELECT verdict;
END
//

DROP PROCEDURE IF EXISTS oncekey_forget_v1
//
CREATE PROCEDURE oncekey_forget_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020), p_token BIGINT, p_force BOOLEAN,
    p_audit MEDIUMBLOB
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment, r_token, r_version, r_expires BIGINT;
    DECLARE verdict, r_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET verdict = 'done';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    SELECT status, token, version, expires INTO r_status, r_token, r_version, r_expires
    FROM oncekey_records WHERE scope = p_scope AND `key` = p_key FOR UPDATE;
    SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    IF r_version > 1 THEN
        SET verdict = 'newer';
    ELSEIF NOT (r_expires > 0 AND r_expires <= moment)
        AND (r_token <> p_token OR r_status IN ('running', 'held') AND NOT p_force) THEN
        SET verdict = 'lost';
    ELSEIF verdict IS NULL THEN
        DELETE FROM oncekey_records WHERE scope = p_scope AND `key` = p_key;
        IF p_audit <> '' THEN
            CALL oncekey_add_audit_v1(p_audit);
        END IF;
        SET verdict = 'done';
    END IF;
    COMMIT;
    SELECT verdict;
END
//

DROP PROCEDURE IF EXISTS oncekey_get_v1
//
CREATE PROCEDURE oncekey_get_v1(p_scope VARBINARY(1020), p_key VARBINARY(1020))
SQL SECURITY INVOKER
BEGIN
    DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    SELECT scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
        revision, uncertain, label, reference, created, started, updated, finished, expires,
        version, hand
    FROM oncekey_records
    WHERE scope = p_scope AND `key` = p_key AND (expires = 0 OR expires > moment);
    COMMIT;
END
//

DROP PROCEDURE IF EXISTS oncekey_scan_v1
//
CREATE PROCEDURE oncekey_scan_v1(
    p_after_scope VARBINARY(1020), p_after_key VARBINARY(1020), p_any_scope BOOLEAN,
    p_scope VARBINARY(1020), p_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin,
    p_limit BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    SELECT scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
        revision, uncertain, label, reference, created, started, updated, finished, expires,
        version, hand
    FROM oncekey_records
    WHERE (scope > p_after_scope OR scope = p_after_scope AND `key` > p_after_key)
        AND (expires = 0 OR expires > moment) AND (p_any_scope OR scope = p_scope)
        AND (p_status IS NULL OR status = p_status)
    ORDER BY scope, `key` LIMIT p_limit;
    COMMIT;
END
//

-- What somebody holds just now is left for the next time.
DROP PROCEDURE IF EXISTS oncekey_purge_v1
//
CREATE PROCEDURE oncekey_purge_v1(p_grace BIGINT, p_limit BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    DECLARE removed BIGINT DEFAULT 0;
    DECLARE finished BOOLEAN DEFAULT FALSE;
    DECLARE late_scope, late_key VARBINARY(1020);
    DECLARE late CURSOR FOR
        SELECT scope, `key` FROM oncekey_records
        WHERE due > 0 AND due <= moment - p_grace
            AND expires > 0 AND expires <= moment - p_grace
        ORDER BY due LIMIT p_limit FOR UPDATE SKIP LOCKED;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET finished = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    OPEN late;
    removing: LOOP
        FETCH late INTO late_scope, late_key;
        IF finished THEN
            LEAVE removing;
        END IF;
        DELETE FROM oncekey_records WHERE scope = late_scope AND `key` = late_key;
        SET removed = removed + 1;
    END LOOP;
    CLOSE late;
    COMMIT;
    SELECT removed;
END
//

-- Keep a record of another store, unless there is a living one.
DROP PROCEDURE IF EXISTS oncekey_restore_v1
//
CREATE PROCEDURE oncekey_restore_v1(
    p_scope VARBINARY(1020), p_key VARBINARY(1020),
    p_status VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin, p_fingerprint VARBINARY(255),
    p_token BIGINT, p_nonce VARBINARY(255), p_attempt BIGINT, p_lease_end BIGINT, p_result LONGBLOB,
    p_error LONGBLOB, p_noted LONGBLOB, p_revision BIGINT, p_uncertain BOOLEAN,
    p_label MEDIUMBLOB, p_reference MEDIUMBLOB, p_created BIGINT, p_started BIGINT,
    p_updated BIGINT, p_finished BIGINT, p_expires BIGINT, p_hand MEDIUMBLOB
) SQL SECURITY INVOKER
BEGIN
    DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    DECLARE verdict VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin DEFAULT 'done';
    DECLARE CONTINUE HANDLER FOR 1062 SET verdict = 'lost';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    IF p_expires > 0 AND p_expires <= moment THEN
        SET verdict = 'lost';
    ELSE
        DELETE FROM oncekey_records WHERE scope = p_scope AND `key` = p_key
            AND expires > 0 AND expires <= moment AND version <= 1;
        INSERT INTO oncekey_records (
            scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, result, error,
            noted, revision, uncertain, label, reference, created, started, updated, finished,
            expires, version, hand, due
        ) VALUES (
            p_scope, p_key, p_status, p_fingerprint, p_token, p_nonce, p_attempt, p_lease_end,
            p_result, p_error, p_noted, p_revision, p_uncertain, p_label, p_reference, p_created,
            p_started, p_updated, p_finished, p_expires, 1, p_hand, p_expires
        );
    END IF;
    COMMIT;
    SELECT verdict;
END
//

-- Batches: many claims, or many settles, in one transaction and one commit, for the tasks of one event
-- loop. They come as an array of arrays in JSON, all bytes in hexadecimal. None of them waits long
-- for a row that another connection holds. Rows come in the order of scope and key and none twice, so
-- no two batches wait for each other. What fails, fails as a whole, and each task asks alone. One
-- answer stands for all if it is the same for all; null sends all of them to ask alone.

-- The answer has the place of each task in the array. A task without an answer asks alone: its record
-- has to change, or has gone meanwhile. `p_lease` is the shortest lease of the batch. MySQL waits for
-- a locked row a second at least; MariaDB does not have to, and tries again a little later.
DROP PROCEDURE IF EXISTS oncekey_claims_v1
//
CREATE PROCEDURE oncekey_claims_v1(p_asks LONGTEXT, p_count BIGINT, p_lease BIGINT)
SQL SECURITY INVOKER
claiming: BEGIN
    DECLARE day BIGINT DEFAULT 86400000000;
    DECLARE usual BIGINT DEFAULT @@session.innodb_lock_wait_timeout;
    DECLARE waits BIGINT DEFAULT IF(VERSION() LIKE '%MariaDB%', 0, 1);
    DECLARE refused BOOLEAN;
    DECLARE tries, granted BIGINT DEFAULT 0;
    DECLARE moment, later BIGINT;
    DECLARE there LONGTEXT CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE CONTINUE HANDLER FOR 1062, 1205 SET refused = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        SET SESSION innodb_lock_wait_timeout = usual;
        RESIGNAL;
    END;

    SET SESSION innodb_lock_wait_timeout = waits;
    inserting: LOOP
        SET refused = FALSE, tries = tries + 1;
        CALL oncekey_begin_v1();
        SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
        INSERT INTO oncekey_records (
            scope, `key`, status, fingerprint, token, nonce, attempt, lease_end, noted, revision,
            uncertain, label, reference, created, started, updated, finished, expires, version,
            hand, due
        ) SELECT
            UNHEX(a.scope), UNHEX(a.`key`), 'running', UNHEX(a.fingerprint), moment,
            UNHEX(a.nonce), 1, moment + a.lease, '', 0, FALSE, UNHEX(a.label), UNHEX(a.reference),
            moment, moment, moment, 0, moment + a.lease + GREATEST(a.ttl, day), 1, '',
            moment + a.ttl
        FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
            place FOR ORDINALITY,
            scope VARCHAR(2040) PATH '$[0]',
            `key` VARCHAR(2040) PATH '$[1]',
            nonce VARCHAR(510) PATH '$[2]',
            fingerprint VARCHAR(510) PATH '$[3]',
            lease BIGINT PATH '$[4]',
            ttl BIGINT PATH '$[5]',
            label LONGTEXT PATH '$[6]',
            reference LONGTEXT PATH '$[7]'
        )) AS a
        WHERE there = '' OR NOT FIND_IN_SET(a.place, there);
        SET granted = ROW_COUNT();
        SET later = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
        IF NOT refused AND later - moment <= p_lease DIV 10 THEN
            LEAVE inserting;
        END IF;
        ROLLBACK;
        -- A batch that was held up would hand out leases that are partly over.
        IF NOT refused OR tries = 5 OR tries = 2 AND waits > 0 THEN
            SET SESSION innodb_lock_wait_timeout = usual;
            SELECT NULL;
            LEAVE claiming;
        END IF;
        IF tries > 1 THEN
            DO SLEEP(0.02);
        END IF;
        SELECT COALESCE(GROUP_CONCAT(a.place), '') INTO there
        FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
            place FOR ORDINALITY,
            scope VARCHAR(2040) PATH '$[0]',
            `key` VARCHAR(2040) PATH '$[1]'
        )) AS a
        STRAIGHT_JOIN oncekey_records t FORCE INDEX (PRIMARY)
            ON t.scope = UNHEX(a.scope) AND t.`key` = UNHEX(a.`key`);
    END LOOP;
    COMMIT;
    SET SESSION innodb_lock_wait_timeout = usual;
    IF granted = p_count THEN
        SELECT moment;
        LEAVE claiming;
    END IF;
    SET later = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    SELECT a.place, CASE
        -- What was granted is what this transaction has inserted.
        WHEN t.nonce = UNHEX(a.nonce) AND t.token = moment AND t.status = 'running' THEN 'granted'
        WHEN t.version > 1 THEN 'newer'
        WHEN t.expires > 0 AND t.expires <= later THEN NULL
        WHEN t.fingerprint <> UNHEX(a.fingerprint)
            AND SUBSTRING_INDEX(t.fingerprint, ':', 1) =
                SUBSTRING_INDEX(UNHEX(a.fingerprint), ':', 1)
            AND (t.status <> 'released' OR t.noted <> '' OR t.uncertain) THEN 'mismatch'
        WHEN t.status IN ('completed', 'failed') THEN 'replay'
        WHEN t.status = 'held' THEN 'held'
        WHEN t.nonce = UNHEX(a.nonce) THEN CASE t.status WHEN 'released' THEN 'spent' END
        WHEN t.status = 'running' AND later < t.lease_end THEN 'busy'
    END AS answer, IF(t.token = moment, moment, later), t.scope, t.`key`, t.status, t.fingerprint,
        t.token, t.nonce, t.attempt, t.lease_end, t.result, t.error, t.noted, t.revision,
        t.uncertain, t.label, t.reference, t.created, t.started, t.updated, t.finished, t.expires,
        t.version, t.hand
    FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
        place FOR ORDINALITY,
        scope VARCHAR(2040) PATH '$[0]',
        `key` VARCHAR(2040) PATH '$[1]',
        nonce VARCHAR(510) PATH '$[2]',
        fingerprint VARCHAR(510) PATH '$[3]'
    )) AS a
    STRAIGHT_JOIN oncekey_records t FORCE INDEX (PRIMARY)
        ON t.scope = UNHEX(a.scope) AND t.`key` = UNHEX(a.`key`)
    HAVING answer IS NOT NULL;
    COMMIT;
END
//

-- The answer names those that are settled. The others ask alone, also those whose row is locked.
--
-- An UPDATE that joins what it is told writes all of it into a file first, and takes several times as
-- long as an INSERT that finds each row there. `status` cannot be null: a row that is not its owner's
-- ends the statement, and so does one that is locked. A row that was not there counts as one instead
-- of two. Then it is looked first, and what is locked is left out; on MySQL at once, because it would
-- wait for a second.
DROP PROCEDURE IF EXISTS oncekey_settles_v1
//
CREATE PROCEDURE oncekey_settles_v1(p_asks LONGTEXT, p_count BIGINT) SQL SECURITY INVOKER
settles: BEGIN
    DECLARE usual BIGINT DEFAULT @@session.innodb_lock_wait_timeout;
    DECLARE waits BIGINT DEFAULT IF(VERSION() LIKE '%MariaDB%', 0, 1);
    DECLARE looking BOOLEAN DEFAULT waits > 0;
    DECLARE refused BOOLEAN;
    DECLARE settled BIGINT DEFAULT p_count;
    DECLARE changed, moment BIGINT;
    DECLARE mine LONGTEXT CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE CONTINUE HANDLER FOR 1048, 1205 SET refused = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        SET SESSION innodb_lock_wait_timeout = usual;
        RESIGNAL;
    END;

    SET SESSION innodb_lock_wait_timeout = waits;
    settling: LOOP
        SET refused = FALSE;
        CALL oncekey_begin_v1();
        SET moment = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
        IF looking THEN
            SET SESSION innodb_lock_wait_timeout = 1;  -- with 0 and a locked row no COMMIT succeeds
            SELECT COUNT(*), COALESCE(GROUP_CONCAT(a.place), '') INTO settled, mine
            FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
                place FOR ORDINALITY,
                scope VARCHAR(2040) PATH '$[0]',
                `key` VARCHAR(2040) PATH '$[1]',
                token BIGINT PATH '$[2]',
                nonce VARCHAR(510) PATH '$[3]'
            )) AS a
            STRAIGHT_JOIN oncekey_records t FORCE INDEX (PRIMARY)
                ON t.scope = UNHEX(a.scope) AND t.`key` = UNHEX(a.`key`)
            WHERE t.token = a.token AND t.nonce = UNHEX(a.nonce)
                AND t.status IN ('running', 'held') AND (t.expires = 0 OR t.expires > moment)
                AND t.version <= 1
            FOR UPDATE SKIP LOCKED;
        END IF;
        INSERT INTO oncekey_records (
            scope, `key`, token, nonce, status, result, error, expires,
            attempt, lease_end, noted, revision, uncertain, label, reference, created, started,
            updated, finished, version, hand, due
        ) SELECT
            UNHEX(a.scope), UNHEX(a.`key`), a.token, UNHEX(a.nonce), UNHEX(a.status),
            UNHEX(a.result), UNHEX(a.error), moment + a.ttl,
            0, 0, '', 0, FALSE, '', '', 0, 0, 0, 0, 0, '', 0
        FROM JSON_TABLE(p_asks, '$[*]' COLUMNS (
            place FOR ORDINALITY,
            scope VARCHAR(2040) PATH '$[0]',
            `key` VARCHAR(2040) PATH '$[1]',
            token BIGINT PATH '$[2]',
            nonce VARCHAR(510) PATH '$[3]',
            status VARCHAR(40) PATH '$[4]',
            result LONGTEXT PATH '$[5]',
            error LONGTEXT PATH '$[6]',
            ttl BIGINT PATH '$[7]'
        )) AS a
        WHERE settled = p_count OR FIND_IN_SET(a.place, mine)
        ON DUPLICATE KEY UPDATE
            oncekey_records.status = IF(
                oncekey_records.token = VALUES(token) AND oncekey_records.nonce = VALUES(nonce)
                    AND oncekey_records.status IN ('running', 'held')
                    AND (oncekey_records.expires = 0 OR oncekey_records.expires > moment)
                    AND oncekey_records.version <= 1,
                VALUES(status), NULL
            ),
            result = VALUES(result), error = VALUES(error), uncertain = FALSE, updated = moment,
            finished = moment, expires = VALUES(expires),
            due = IF(due = 0, VALUES(expires), LEAST(due, VALUES(expires)));
        SET changed = ROW_COUNT();
        IF NOT refused AND changed = 2 * settled THEN
            LEAVE settling;
        END IF;
        ROLLBACK;
        IF looking THEN
            SET SESSION innodb_lock_wait_timeout = usual;
            SELECT NULL;
            LEAVE settles;
        END IF;
        SET looking = TRUE;
    END LOOP;
    COMMIT;
    SET SESSION innodb_lock_wait_timeout = usual;
    SELECT IF(settled = p_count, 'done', mine);
END
//

-- Add to the sums of a moment. All take the slots in the same order.
DROP PROCEDURE IF EXISTS oncekey_add_activity_v1
//
CREATE PROCEDURE oncekey_add_activity_v1(
    p_ago BIGINT, p_new BIGINT, p_duplicates BIGINT, p_held BIGINT, p_errors BIGINT
) SQL SECURITY INVOKER
BEGIN
    DECLARE latest BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    DECLARE moment BIGINT DEFAULT latest - p_ago;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL oncekey_begin_v1();
    INSERT INTO oncekey_activity (place, width, at, new, duplicates, held, errors)
    SELECT r.first + moment DIV r.width % r.length, r.width, moment - moment % r.width,
        p_new, p_duplicates, p_held, p_errors
    FROM (
        SELECT 60000000 AS width, 60 AS length, 0 AS first
        UNION ALL SELECT 600000000, 144, 60
        UNION ALL SELECT 3600000000, 168, 204
    ) AS r
    WHERE latest - r.width * r.length < moment - moment % r.width
        AND moment - moment % r.width <= latest
    ORDER BY r.first
    ON DUPLICATE KEY UPDATE
        new = IF(at > VALUES(at), new, VALUES(new) + IF(at = VALUES(at), new, 0)),
        duplicates = IF(
            at > VALUES(at), duplicates, VALUES(duplicates) + IF(at = VALUES(at), duplicates, 0)
        ),
        held = IF(at > VALUES(at), held, VALUES(held) + IF(at = VALUES(at), held, 0)),
        errors = IF(at > VALUES(at), errors, VALUES(errors) + IF(at = VALUES(at), errors, 0)),
        at = GREATEST(at, VALUES(at));
    COMMIT;
    SELECT 'done';
END
//

DROP PROCEDURE IF EXISTS oncekey_activity_v1
//
CREATE PROCEDURE oncekey_activity_v1() SQL SECURITY INVOKER
BEGIN
    DECLARE moment BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6));
    SELECT moment, a.width, a.at, a.new, a.duplicates, a.held, a.errors
    FROM (SELECT 1 AS one) AS one LEFT JOIN oncekey_activity a ON TRUE;
    COMMIT;
END
//

INSERT INTO oncekey_schema (one, version, oldest) VALUES (1, 1, 1)
ON DUPLICATE KEY UPDATE version = GREATEST(version, 1)
//
