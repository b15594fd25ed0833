-- What people who look at records go by: the newest first, and those that are held.
--
-- Neither `created` nor `due` moves from claim to settle, so that a settle still changes no index.
-- Only held records are never due: the second index is empty as long as nothing is held.
--
-- Nobody writes while an index is made. A large table is left as it is, for `oncekey migrate` to do
-- at a good moment, without stopping anybody; until then records are listed by scope and key.
DO $$
BEGIN
    IF pg_relation_size('oncekey_records') < 512 * 1024 * 1024 THEN
        CREATE INDEX IF NOT EXISTS oncekey_records_created ON oncekey_records (created);
        CREATE INDEX IF NOT EXISTS oncekey_records_held ON oncekey_records (created) WHERE due = 0;
    END IF;
END
$$;

UPDATE oncekey_schema SET version = 3;
