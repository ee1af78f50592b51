-- The field: what others do to elect a leader with PostgreSQL, written from
-- descriptions of them, not taken from their sources, and as fast as it can be
-- within their design: half of each page is free, so that every update stays on
-- its page (HOT), and a transaction is sent in one round trip.
--
-- Each has 64 leases that are held (by "holder", named by the number of the
-- pgbench client that renews them), 64 that come and go ("term N"), and one that
-- everybody loses ("held").  Two schemas: "logged", where a server crash loses
-- nothing, and "unlogged", as River and Oban create their tables, where it loses
-- who led.

\set ON_ERROR_STOP on

CREATE SCHEMA logged;
CREATE SCHEMA unlogged;

CREATE TABLE logged.river_leader (
	name text PRIMARY KEY,
	leader_id text NOT NULL,
	elected_at timestamptz NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE logged.oban_peers (
	name text PRIMARY KEY,
	node text NOT NULL,
	started_at timestamp NOT NULL,
	expires_at timestamp NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE unlogged.river_leader (LIKE logged.river_leader INCLUDING ALL) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE unlogged.oban_peers (LIKE logged.oban_peers INCLUDING ALL) WITH (fillfactor = 50);

CREATE TABLE logged.shedlock (
	name text PRIMARY KEY,
	lock_until timestamp NOT NULL,
	locked_at timestamp NOT NULL,
	locked_by text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE logged.lease (
	key text PRIMARY KEY,
	owner text,
	epoch bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The best row lease that one can write by hand: one statement acquires, takes
-- over and renews, and a release leaves the row and its epoch behind.
CREATE TABLE logged.upsert_lease (
	name text PRIMARY KEY,
	holder text,
	epoch bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

SET search_path = logged;
CREATE TEMP VIEW lease_name AS SELECT n::text AS name FROM generate_series(0, 63) n UNION ALL SELECT 'held';
INSERT INTO river_leader SELECT name, 'holder', '2020-01-01 00:00:00+00', now() + interval '24h' FROM lease_name;
INSERT INTO oban_peers SELECT name, 'holder', now() AT TIME ZONE 'UTC', now() AT TIME ZONE 'UTC' + interval '24h' FROM lease_name;
INSERT INTO unlogged.river_leader TABLE river_leader;
INSERT INTO unlogged.oban_peers TABLE oban_peers;
INSERT INTO shedlock SELECT name, now() AT TIME ZONE 'UTC' + interval '24h', now() AT TIME ZONE 'UTC', 'holder' FROM lease_name;
INSERT INTO shedlock SELECT 'term ' || n, '-infinity', '-infinity', '' FROM generate_series(0, 63) n;
INSERT INTO lease SELECT name, 'holder', 1, now() + interval '24h' FROM lease_name;
INSERT INTO upsert_lease SELECT name, 'holder', 1, now() + interval '24h' FROM lease_name;
INSERT INTO upsert_lease SELECT 'many ' || n, 'holder of many', n, now() + interval '24h' FROM generate_series(1, 1000) n;

-- pg_lease is functions: a bid looks before it writes, an epoch moves with each
-- acquisition, takeover and release, and a waiting bid looks every 50 ms.

CREATE FUNCTION lease_acquire(k text, o text, ttl interval, wait interval DEFAULT '0',
	OUT acquired boolean, OUT epoch bigint) LANGUAGE plpgsql AS $$
DECLARE
	until timestamptz := clock_timestamp() + wait;
	held logged.lease;
BEGIN
	LOOP
		SELECT * INTO held FROM logged.lease l WHERE l.key = k;
		IF NOT FOUND OR held.owner IS NULL OR held.owner = o OR held.expires_at <= clock_timestamp() THEN
			INSERT INTO logged.lease AS l VALUES (k, o, 1, clock_timestamp() + ttl)
			ON CONFLICT (key) DO UPDATE SET
				owner = o, expires_at = clock_timestamp() + ttl,
				epoch = CASE WHEN l.owner = o AND l.expires_at > clock_timestamp() THEN l.epoch ELSE l.epoch + 1 END
			WHERE l.owner IS NULL OR l.owner = o OR l.expires_at <= clock_timestamp()
			RETURNING l.epoch INTO lease_acquire.epoch;
			acquired := FOUND;
			IF acquired THEN
				RETURN;
			END IF;
		END IF;
		acquired := false;
		EXIT WHEN clock_timestamp() >= until;
		PERFORM pg_sleep(0.05);
	END LOOP;
END
$$;

CREATE FUNCTION lease_renew(k text, o text, e bigint, ttl interval, OUT status text, OUT expires_at timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE logged.lease l SET expires_at = clock_timestamp() + ttl
		WHERE l.key = k AND l.owner = o AND l.epoch = e AND l.expires_at > clock_timestamp()
		RETURNING l.expires_at INTO lease_renew.expires_at;
	IF FOUND THEN
		status := 'ok';
	ELSE
		SELECT CASE WHEN l.owner IS DISTINCT FROM o THEN 'not_owner'
			WHEN l.epoch <> e THEN 'epoch_mismatch' ELSE 'lapsed' END
			INTO status FROM logged.lease l WHERE l.key = k;
	END IF;
END
$$;

CREATE FUNCTION lease_release(k text, o text, e bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	UPDATE logged.lease l SET owner = NULL, expires_at = '-infinity', epoch = l.epoch + 1
		WHERE l.key = k AND l.owner = o AND l.epoch = e;
	RETURN CASE WHEN FOUND THEN 'ok' ELSE 'not_owner' END;
END
$$;

CREATE FUNCTION lease_inspect(k text, OUT owner text, OUT epoch bigint, OUT remaining interval)
LANGUAGE sql STABLE AS $$
	SELECT l.owner, l.epoch, l.expires_at - clock_timestamp() FROM logged.lease l
		WHERE l.key = k AND l.expires_at > clock_timestamp()
$$;
