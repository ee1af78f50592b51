-- What bench/run measures on: the extension, the leases that are held throughout,
-- and what it is compared with.

\set ON_ERROR_STOP on

CREATE EXTENSION leader_election;

-- Held to the end of all measurements.  Leases are named by the number of the
-- pgbench client that renews them; "held" is what everybody else loses, and
-- "bench" is what the tables are protected by.
SELECT count(*) FROM generate_series(0, 63) c,
	leader_acquire(c::text, 'holder', '24h');
SELECT count(*) FROM generate_series(1, 1000) n,
	leader_acquire('many ' || n, 'holder of many', '24h');
SELECT epoch FROM leader_acquire('held', 'holder', '24h');
SELECT epoch FROM leader_acquire('bench', 'holder', '24h') \gset

-- Row leases for the fences that are written by hand
CREATE TABLE hand_lease (
	name text PRIMARY KEY,
	holder text,
	epoch bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

INSERT INTO hand_lease VALUES ('bench', 'holder', :epoch, now() + interval '24h');

-- The fence: the same table in several schemas, one for each contender; in some
-- of them in four partitions.  A shard has an election of its own.

SELECT count(*) FROM generate_series(0, 15) n,
	leader_acquire('shard/' || n, 'holder', '24h');
INSERT INTO hand_lease
	SELECT election, leader, epoch, now() + interval '24h'
	FROM leader_status WHERE election LIKE 'shard/%';

SELECT format('CREATE SCHEMA %I; CREATE TABLE %1$I.ledger (id bigint, shard int, amount bigint, epoch bigint)
	WITH (autovacuum_enabled = off)', contender)
FROM unnest('{fence_none,fence_statement,fence_off,fence_given,fence_stamped,fence_one,fence_many,
	hand_statement,hand_given,hand_stamped,hand_one,hand_many}'::text[]) contender \gexec

SELECT format('CREATE SCHEMA %I; CREATE TABLE %1$I.ledger (id bigint, shard int, amount bigint, epoch bigint)
	PARTITION BY RANGE (shard)', contender)
FROM unnest('{parts_none,parts_off,parts_fence,parts_hand}'::text[]) contender \gexec

SELECT format('CREATE TABLE %1$I.ledger_%2$s PARTITION OF %1$I.ledger FOR VALUES FROM (%3$s) TO (%4$s)
	WITH (autovacuum_enabled = off)', nspname, n, 4 * n, 4 * n + 4)
FROM pg_namespace, generate_series(0, 3) n WHERE nspname LIKE 'parts\_%' \gexec

-- Rows that bring their epoch have it from the column's default.
SELECT format('ALTER TABLE %I.ledger ALTER epoch SET DEFAULT %s', nspname, :epoch)
FROM pg_namespace
WHERE nspname ~ '^(fence|hand|parts)_' AND nspname !~ '_stamped$' \gexec

SELECT leader_protect('fence_statement.ledger', 'bench');
SELECT leader_protect('fence_off.ledger', 'bench', 'epoch');
SELECT leader_protect('fence_given.ledger', 'bench', 'epoch');
SELECT leader_protect('fence_stamped.ledger', 'bench', 'epoch');
SELECT leader_protect('fence_one.ledger', 'shard/{shard}');
SELECT leader_protect('fence_many.ledger', 'shard/{shard}');
SELECT leader_protect('parts_off.ledger', 'bench');
SELECT leader_protect('parts_fence.ledger', 'bench');

-- The same in PL/pgSQL, as well as it can be done.  A trigger has to lock the row
-- of the lease, or a takeover could commit between the check and the commit.  By
-- row it does so once in a transaction, and keeps in a setting, which goes with
-- the transaction or savepoint as the lock does, what it has found.  Settings
-- also present the tokens: hand.bench, and hand.shard_N for each shard.
--
-- All of these do less than the extension: a takeover waits for whoever has
-- written, however long; an UPDATE that leaves the epoch as it was, or that moves
-- a row to another shard, passes, whoever sends it; a DELETE is checked by
-- statement only.

CREATE FUNCTION hand_require(lease text, token text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM public.hand_lease WHERE name = lease AND epoch = token::bigint FOR SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stale epoch % of %', token, lease;
	END IF;
END
$$;

CREATE FUNCTION hand_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.hand_require('bench', current_setting('hand.bench'));
	RETURN NULL;
END
$$;

CREATE FUNCTION hand_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('hand.found', true) IS DISTINCT FROM current_setting('hand.bench') THEN
		PERFORM public.hand_require('bench', current_setting('hand.bench'));
		PERFORM set_config('hand.found', current_setting('hand.bench'), true);
	END IF;
	RETURN NEW;
END
$$;

CREATE FUNCTION hand_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.epoch IS NULL THEN
		NEW.epoch := current_setting('hand.bench');
	END IF;
	IF current_setting('hand.found', true) IS DISTINCT FROM NEW.epoch::text THEN
		PERFORM public.hand_require('bench', NEW.epoch::text);
		PERFORM set_config('hand.found', NEW.epoch::text, true);
	END IF;
	RETURN NEW;
END
$$;

CREATE FUNCTION hand_shard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	token text := current_setting('hand.shard_' || NEW.shard);
BEGIN
	IF current_setting('hand.found_' || NEW.shard, true) IS DISTINCT FROM token THEN
		PERFORM public.hand_require('shard/' || NEW.shard, token);
		PERFORM set_config('hand.found_' || NEW.shard, token, true);
	END IF;
	RETURN NEW;
END
$$;

CREATE TRIGGER fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON hand_statement.ledger
	FOR EACH STATEMENT EXECUTE FUNCTION hand_statement();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON hand_given.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_epoch();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON hand_stamped.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_epoch();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON hand_one.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_shard();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON hand_many.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_shard();
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON parts_hand.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_row();

-- Processor time that this backend has used, in microseconds; NULL if the system
-- does not tell.  It is brought up to date when a process gives the processor away.
CREATE FUNCTION processor_time() RETURNS float8 LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.001);
	RETURN split_part(pg_read_file('/proc/self/schedstat', 0, 100, true), ' ', 1)::float8 / 1000;
END
$$;

\ir peers.sql

VACUUM ANALYZE;
CHECKPOINT;
