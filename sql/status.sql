--
-- leader_status: every election, as it stands at the moment of reading.  Guards
-- that it never shows as leading who leads no more, that it shows others no more
-- than a name, and that neither conditions of queries nor errors tell the rest.
-- And metadata: its limits, its replacement, its end.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_status_owner, regress_status_other, regress_status_monitor;
RESET client_min_messages;

CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
-- What can be compared of a row
CREATE FUNCTION shown(name text, OUT leader text, OUT kind text, OUT state text, OUT ttl interval, OUT left_over boolean,
					  OUT since boolean, OUT metadata jsonb, OUT terms bigint, OUT mine boolean, OUT epoch boolean)
LANGUAGE sql AS $$
	SELECT leader, kind, state, ttl, expires_in > '0' AND expires_in <= ttl, acquired_at <= clock_timestamp(), metadata, terms,
		   pid = pg_backend_pid(), epoch > 0
	FROM leader_status WHERE election = name
$$;

-- The columns
SELECT * FROM leader_status WHERE false;
SELECT * FROM leader_term WHERE false;

--
-- Every state
--
SELECT shown('status');
SELECT leader_configure('status');
SELECT * FROM shown('status');
SELECT epoch AS e1 FROM leader_acquire('status', 'a', '1 h') \gset
SELECT * FROM shown('status');
SELECT epoch = :e1 AS epoch, owner = current_user AS owner, paused FROM leader_status WHERE election = 'status';
SELECT leader_release('status', :e1);
SELECT * FROM shown('status');
SELECT epoch AS e2 FROM leader_acquire('status', 'b', '100 ms') \gset
CALL wait_expired('status');
SELECT * FROM shown('status');
SELECT epoch = :e2 AS epoch, expires_in FROM leader_status WHERE election = 'status';
-- Of a session: who it is, with and without a TTL
SELECT epoch AS e3 FROM leader_acquire_session('status', 'c') \gset
SELECT * FROM shown('status');
SELECT leader_release('status', :e3);
SELECT epoch AS e4 FROM leader_acquire_session('status', 'd', '1 h') \gset
SELECT * FROM shown('status');
-- A session that leads no more is not shown, from the very moment.
SELECT pg_advisory_unlock_all();
SELECT * FROM shown('status');
SELECT epoch AS e5 FROM leader_acquire_session('status', 'e', '100 ms') \gset
CALL wait_expired('status');
SELECT * FROM shown('status');
SELECT leader_depose('status') > :e5 AS deposed;
SELECT * FROM shown('status');
SELECT leader_configure('status external', external => true);
SELECT * FROM shown('status external');
-- What is left grows less, and is renewed.
SELECT epoch AS e6 FROM leader_acquire('status', 'f', '1 h') \gset
SELECT expires_in AS before FROM leader_status WHERE election = 'status' \gset
SELECT pg_sleep(0.01);
SELECT expires_in AS after FROM leader_status WHERE election = 'status' \gset
SELECT is_leader FROM leader_renew('status', :e6);
SELECT expires_in > :'after' AS renewed, :'after'::interval < :'before'::interval AS less FROM leader_status WHERE election = 'status';
-- It is read anew in every isolation level, as leadership is.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT leader FROM leader_status WHERE election = 'status';
SELECT is_leader FROM leader_renew('status', :e6);
SELECT leader FROM leader_status WHERE election = 'status';
COMMIT;
-- What its own transaction has done is seen, and gone with it.
BEGIN;
SELECT leader_release('status', :e6);
SELECT is_leader FROM leader_acquire_session('status', 'g');
SELECT * FROM shown('status');
ROLLBACK;
SELECT * FROM shown('status');

--
-- Metadata
--
SELECT leader_set_metadata('status', :e6, '{"host": "one"}');
SELECT metadata FROM leader_status WHERE election = 'status';
SELECT leader_set_metadata('status', :e6, '[2]');
SELECT metadata FROM leader_status WHERE election = 'status';
-- JSON's null is something, SQL's is nothing.
SELECT leader_set_metadata('status', :e6, 'null');
SELECT metadata, metadata IS NULL AS none FROM leader_status WHERE election = 'status';
SELECT leader_set_metadata('status', :e6, NULL);
SELECT metadata, metadata IS NULL AS none FROM leader_status WHERE election = 'status';
-- 8 kB as text, and not a byte more
SELECT leader_set_metadata('status', :e6, to_jsonb(repeat('x', 8190)));
SELECT leader_set_metadata('status', :e6, to_jsonb(repeat('x', 8191)));
SELECT length(metadata::text) FROM leader_status WHERE election = 'status';
SELECT is_leader FROM leader_acquire('status', 'f', '1 h', metadata => to_jsonb(repeat('x', 8191)));
SELECT is_leader FROM leader_acquire('status large', 'f', '1 h', metadata => to_jsonb(repeat('x', 8191)));
SELECT count(*) FROM leader_status WHERE election = 'status large';
-- One that does not compress, which is stored elsewhere
SELECT leader_set_metadata('status', :e6, (SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 200) n));
SELECT metadata = (SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 200) n) AS same FROM leader_status WHERE election = 'status';
-- A renewal keeps it, and changes nothing; a new term clears it.
SELECT leader_set_metadata('status', :e6, '1');
SELECT is_leader FROM leader_acquire('status', 'f', '1 h', metadata => '2');
SELECT metadata FROM leader_status WHERE election = 'status';
SELECT leader_release('status', :e6);
SELECT metadata FROM leader_status WHERE election = 'status';
SELECT leader_set_metadata('status', :e6, '3');
SELECT epoch AS e7 FROM leader_acquire('status', 'f', '1 h') \gset
SELECT metadata FROM leader_status WHERE election = 'status';
SELECT leader_set_metadata('status', :e6, '3');
SELECT metadata FROM leader_status WHERE election = 'status';
-- It goes with its transaction.
BEGIN;
SELECT leader_set_metadata('status', :e7, '4');
SELECT metadata FROM leader_status WHERE election = 'status';
ROLLBACK;
SELECT metadata FROM leader_status WHERE election = 'status';
-- That of a term that ran out is shown no more.
SELECT epoch AS m1 FROM leader_acquire('status out', 'a', '100 ms', metadata => '{"host": "two"}') \gset
CALL wait_expired('status out');
SELECT leader, state, metadata FROM leader_status WHERE election = 'status out';
SELECT leader_set_metadata('status out', :m1, '5');
SELECT leader_set_metadata(NULL, 1, '1');
SELECT leader_set_metadata('status', NULL, '1');

--
-- Others are told the name of an election, and nothing else.
--
CREATE ROLE regress_status_owner;
CREATE ROLE regress_status_other;
CREATE ROLE regress_status_monitor IN ROLE pg_read_all_stats;
SET ROLE regress_status_owner;
SELECT leader_configure('status secret', lock_delay => '1 h', failover_limit => 5);
SELECT epoch AS x1 FROM leader_acquire_session('status secret', 'secret holder', metadata => '{"secret": 1}') \gset
SELECT pg_advisory_unlock_all();
SELECT epoch AS x2 FROM leader_acquire_session('status secret', 'secret holder', metadata => '{"secret": 2}') \gset
CREATE TEMP TABLE secret_job (n int, epoch bigint);
SELECT leader_protect('secret_job', 'status secret', 'epoch');
GRANT ALL ON secret_job TO regress_status_other;
SET ROLE regress_status_monitor;
SELECT leader, kind, metadata, terms, owner FROM leader_status WHERE election = 'status secret';
SELECT leader, end_reason FROM leader_term WHERE election = 'status secret' ORDER BY epoch;
SET ROLE regress_status_other;
SELECT * FROM leader_status WHERE election = 'status secret' \gx
SELECT count(*) FROM leader_term WHERE election = 'status secret';
SELECT count(leader) + count(epoch) + count(kind) + count(state) + count(paused) + count(ttl) + count(expires_in) + count(acquired_at)
	   + count(metadata) + count(owner) + count(terms) + count(pid) AS anything FROM leader_status;
SELECT count(*) AS rows_in_table FROM leader_election_metadata;
SELECT count(*) AS rows_in_table FROM leader_election_config;
SELECT leader FROM leader_election_status() WHERE election = 'status secret';
-- Nor by a condition of a query, which the planner would like to ask first
CREATE FUNCTION pg_temp.tell(leader text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE COST 0.0000001 AS $$
BEGIN
	IF leader IS NOT NULL THEN
		RAISE EXCEPTION 'told: %', leader;
	END IF;
	RETURN true;
END $$;
SELECT count(*) FROM leader_status WHERE pg_temp.tell(leader) AND election = 'status secret';
SELECT count(*) FROM leader_status WHERE pg_temp.tell(metadata::text) AND election = 'status secret';
-- Nor by what errors say, in full
CREATE FUNCTION pg_temp.error_of(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text; detail text; hint text; context text;
BEGIN
	EXECUTE command;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = message_text, detail = pg_exception_detail, hint = pg_exception_hint, context = pg_exception_context;
	RETURN message || detail || hint || context;
END $$;
SELECT c.command, e.message IS NOT NULL AS refused,
	   e.message ~ 'secret holder' OR e.message ~ '"secret"' OR position(:'x2' IN e.message) > 0 AS told
FROM unnest('{
	"SELECT leader_acquire(''status secret'', ''b'', ''1 h'')",
	"SELECT leader_acquire_session(''status secret'', ''b'')",
	"SELECT leader_renew(''status secret'', 1)",
	"SELECT leader_release(''status secret'', 1)",
	"SELECT leader_check(''status secret'', 1)",
	"SELECT leader_fence(''status secret'', 1)",
	"SELECT leader_set_metadata(''status secret'', 1, ''1'')",
	"SELECT leader_depose(''status secret'')",
	"SELECT leader_drop(''status secret'')",
	"SELECT leader_configure(''status secret'', paused => true)",
	"SELECT leader_stats_reset(''status secret'')",
	"INSERT INTO secret_job VALUES (1, 1)",
	"INSERT INTO secret_job VALUES (1, 9007199254740991)"
}'::text[]) WITH ORDINALITY AS c(command, n), LATERAL (SELECT pg_temp.error_of(c.command) AS message) AS e ORDER BY n;
SELECT count(*) FROM leader_renew_all('secret holder');
RESET ROLE;
SELECT leader_check('status secret', :x2), metadata FROM leader_status WHERE election = 'status secret';

--
-- What is in the search path, or in pg_temp, is not looked at.
--
GRANT CREATE ON SCHEMA public TO regress_status_other;
CREATE SCHEMA hostile AUTHORIZATION regress_status_other;
SET ROLE regress_status_other;
CREATE TABLE hostile.leader_election_state (election text, epoch bigint, holder text);
CREATE TABLE hostile.leader_election_config (election text, paused boolean);
CREATE TABLE hostile.leader_election_metadata (election text, epoch bigint, metadata jsonb);
CREATE TABLE hostile.leader_election_history (election text, epoch bigint, leader text);
CREATE FUNCTION hostile.raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE FUNCTION hostile.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE OPERATOR hostile.= (leftarg = text, rightarg = text, function = hostile.same);
CREATE TRIGGER raise BEFORE INSERT OR UPDATE OR DELETE ON hostile.leader_election_state FOR EACH STATEMENT EXECUTE FUNCTION hostile.raise();
CREATE FUNCTION hostile.leader_election_status(OUT election text, OUT leader text) RETURNS SETOF record LANGUAGE sql AS $$ SELECT 'hostile', 'hostile' $$;
CREATE TEMP VIEW leader_election_state AS SELECT 'hostile'::text AS election;
CREATE TEMP SEQUENCE leader_election_epoch;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
RESET ROLE;
SET search_path = pg_temp, hostile, public, pg_catalog;
SELECT leader_configure('status path', ttl => '1 h', lock_delay => '1 s', failover_limit => 2);
SELECT is_leader, epoch AS p1 FROM leader_acquire_session('status path', 'a', metadata => '6') \gset
SELECT :'is_leader' AS is_leader;
SELECT leader, metadata, state FROM public.leader_status WHERE election OPERATOR(pg_catalog.=) 'status path';
SELECT leader, end_reason FROM public.leader_term WHERE election OPERATOR(pg_catalog.=) 'status path';
SELECT terms FROM public.leader_stats WHERE election OPERATOR(pg_catalog.=) 'status path';
SELECT leader_depose('status path') > :p1 AS deposed;
SELECT leader_stats_reset('status path');
SELECT leader_drop('status path');
SET search_path = '';
SELECT public.leader_configure('status path', paused => true);
SELECT election, paused FROM public.leader_status WHERE election = 'status path';
SELECT count(*) FROM public.leader_term WHERE election = 'status path';
SELECT count(*) FROM public.leader_stats WHERE election = 'status path';
SELECT public.leader_drop('status path');
RESET search_path;
REVOKE CREATE ON SCHEMA public FROM regress_status_other;
SET client_min_messages = warning;
DROP SCHEMA hostile CASCADE;
RESET client_min_messages;

DROP FUNCTION shown;
DROP PROCEDURE wait_expired;
DROP TABLE secret_job;
DROP OWNED BY regress_status_other, regress_status_owner;
DROP ROLE regress_status_owner, regress_status_other, regress_status_monitor;
