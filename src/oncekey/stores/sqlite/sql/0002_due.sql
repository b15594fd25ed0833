-- When purge may look at a record: it expires no sooner than this. Not part of the record.
--
-- `expires` moves with every write, `due` stands still from claim to settle: a settle changes no
-- index. What a release writes that does not know of it is looked at by every purge until it
-- expires, and is not kept for longer.
ALTER TABLE oncekey_records ADD COLUMN due INTEGER NOT NULL DEFAULT 1;
UPDATE oncekey_records SET due = expires;
DROP INDEX oncekey_records_expires;
CREATE INDEX oncekey_records_due ON oncekey_records (due) WHERE due > 0;
