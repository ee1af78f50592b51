-- What a transaction that depends on very many elections is measured on, in a
-- database of its own: ten thousand leases, and the tokens of them all.

\set ON_ERROR_STOP on

CREATE EXTENSION leader_election;
SET leader_election.max_elections = 20000;
SET leader_election.history = off;
SET leader_election.notify = off;

-- Few at a time: each election has a lock until the commit.
DO $$
BEGIN
	FOR i IN 0 .. 99 LOOP
		PERFORM leader_acquire('shard/' || n, 'holder', '24h')
		FROM generate_series(100 * i, 100 * i + 99) n;
		COMMIT;
	END LOOP;
END
$$;

CREATE TABLE token (shard int PRIMARY KEY, epoch bigint NOT NULL);
INSERT INTO token
	SELECT substr(election, 7)::int, epoch FROM leader_status;

-- Nearly the same by hand: the trigger locks the row of each lease.
CREATE TABLE hand_lease (name text PRIMARY KEY, epoch bigint NOT NULL);
INSERT INTO hand_lease SELECT 'shard/' || shard, epoch FROM token;

CREATE FUNCTION hand_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM public.hand_lease WHERE name = 'shard/' || NEW.shard AND epoch = NEW.epoch FOR SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stale epoch % of shard %', NEW.epoch, NEW.shard;
	END IF;
	RETURN NEW;
END
$$;

SELECT format('CREATE SCHEMA %I; CREATE TABLE %1$I.ledger (shard int, epoch bigint)
	WITH (autovacuum_enabled = off)', contender)
FROM unnest('{fence_none,fence_given,hand_given}'::text[]) contender \gexec

SELECT leader_protect('fence_given.ledger', 'shard/{shard}', 'epoch');
CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON hand_given.ledger
	FOR EACH ROW EXECUTE FUNCTION hand_check();

VACUUM ANALYZE;
