-- What bench/run measures on: the extension, the leases that are held throughout,
-- and the hand-written equivalents that it is compared with.

\set ON_ERROR_STOP on

CREATE EXTENSION leader_election;

-- Held to the end of all measurements.  Leases are named by the number of the
-- pgbench client that renews them; "bench" is what the tables are protected by.
SELECT count(*) FROM generate_series(0, 63) c,
	leader_acquire(c::text, 'holder', '24h');
SELECT count(*) FROM generate_series(1, 1000) n,
	leader_acquire('many ' || n, 'holder of many', '24h');
SELECT epoch FROM leader_acquire('bench', 'holder', '24h') \gset

-- The best row lease that one can write by hand: one statement acquires, takes
-- over and renews, and a release leaves the row and its epoch behind.

CREATE TABLE hand_lease (
	name text PRIMARY KEY,
	holder text,
	epoch bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

INSERT INTO hand_lease VALUES
	('bench', 'holder', :epoch, now() + interval '24h'),
	('renewed', 'holder', 1, now() + interval '24h');
INSERT INTO hand_lease
	SELECT 'many ' || n, 'holder of many', n, now() + interval '24h'
	FROM generate_series(1, 1000) n;

-- The fence: the same table in several schemas, one for each contender.

CREATE SCHEMA fence_none;
CREATE SCHEMA fence_statement;
CREATE SCHEMA fence_given;
CREATE SCHEMA fence_stamped;
CREATE SCHEMA fence_hand;
CREATE SCHEMA fence_hand_unsafe;

SELECT format('CREATE TABLE %I.ledger (id bigint, amount bigint, epoch bigint)
	WITH (autovacuum_enabled = off)', nspname)
FROM pg_namespace WHERE nspname LIKE 'fence\_%' \gexec

-- Rows that bring their epoch have it from the column's default.
SELECT format('ALTER TABLE %I.ledger ALTER epoch SET DEFAULT %s', nspname, :epoch)
FROM pg_namespace WHERE nspname LIKE 'fence\_%' AND nspname <> 'fence_stamped' \gexec

SELECT leader_protect('fence_statement.ledger', 'bench');
SELECT leader_protect('fence_given.ledger', 'bench', 'epoch');
SELECT leader_protect('fence_stamped.ledger', 'bench', 'epoch');

-- What the extension's row trigger does, in PL/pgSQL.  It has to lock the row of
-- the lease, or a takeover could commit between the check and the commit; the
-- second one does not, and so protects nothing.  Both do less than the extension:
-- an UPDATE that leaves the epoch as it was passes, whoever sends it.

CREATE FUNCTION hand_check() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	current bigint;
BEGIN
	SELECT epoch INTO current FROM public.hand_lease WHERE name = 'bench' FOR SHARE;
	IF NEW.epoch IS DISTINCT FROM current THEN
		RAISE EXCEPTION 'stale epoch %', NEW.epoch;
	END IF;
	RETURN NEW;
END
$$;

CREATE FUNCTION hand_check_unsafe() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	current bigint;
BEGIN
	SELECT epoch INTO current FROM public.hand_lease WHERE name = 'bench';
	IF NEW.epoch IS DISTINCT FROM current THEN
		RAISE EXCEPTION 'stale epoch %', NEW.epoch;
	END IF;
	RETURN NEW;
END
$$;

CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON fence_hand.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_check();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON fence_hand_unsafe.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_check_unsafe();

VACUUM ANALYZE;
CHECKPOINT;
