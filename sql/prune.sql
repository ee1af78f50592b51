--
-- leader_prune(): old terms leave the history.  Guards that it takes what ended
-- long enough ago and nothing else, of the elections that the caller may steer
-- and of no other, and that nobody's objects come between.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_prune_owner, regress_prune_member, regress_prune_other;
RESET client_min_messages;

CREATE ROLE regress_prune_owner;
CREATE ROLE regress_prune_member IN ROLE regress_prune_owner;
CREATE ROLE regress_prune_other IN ROLE pg_read_all_stats;
CREATE PROCEDURE terms(name text, n int)
LANGUAGE plpgsql AS $$
DECLARE
	e bigint;
BEGIN
	FOR i IN 1..n LOOP
		SELECT epoch INTO e FROM leader_acquire(name, 'holder ' || i, '1 h');
		PERFORM leader_release(name, e);
		COMMIT;
	END LOOP;
END $$;
SELECT leader_prune('0') >= 0 AS begun_anew;

SET ROLE regress_prune_owner;
CALL terms('prune own', 3);
SELECT epoch AS e1 FROM leader_acquire('prune own', 'now', '1 h') \gset
RESET ROLE;
CALL terms('prune super', 2);

-- Nothing is old enough.
SELECT leader_prune('1 h');
SELECT leader_prune('1 month');
SELECT leader_prune('100 years');
-- What has ended since a time stays: these ended days ago, as a restored dump has it.
INSERT INTO leader_election_history(election, epoch, leader, acquired_at, ended_at, end_reason)
SELECT name, n, 'holder of old', clock_timestamp() - interval '4 days', clock_timestamp() - n * interval '1 day', 'released'
FROM unnest('{prune own,prune super}'::text[]) AS name, generate_series(1, 3) AS n;
-- What the caller may steer: seen in the view, by members only.
SET ROLE regress_prune_other;
SELECT leader_prune('0');
SET ROLE regress_prune_member;
SELECT leader_prune('3 days 12 hours');
SELECT leader_prune('60 hours');
SELECT election, leader, epoch FROM leader_term WHERE epoch < 10 ORDER BY epoch;
SELECT leader_prune('12 hours');
SELECT leader_prune('12 hours');
SELECT election, leader, end_reason FROM leader_term ORDER BY epoch;
RESET ROLE;
SELECT election, leader, end_reason FROM leader_term WHERE election LIKE 'prune %' ORDER BY epoch, election COLLATE "C";
SELECT leader_prune('12 hours');
-- The term of now goes on, and its end will be in the history.
SELECT leader_check('prune own', :e1);
SELECT leader_prune('0') AS pruned;
SELECT election, leader, end_reason FROM leader_term WHERE election LIKE 'prune %' ORDER BY epoch;
SELECT leader_release('prune own', :e1);
SELECT election, leader, end_reason FROM leader_term WHERE election LIKE 'prune %' ORDER BY epoch;
-- An end that is only seen is no row yet, and so is not pruned.
SELECT epoch AS e2 FROM leader_acquire_session('prune own', 'gone') \gset
SELECT pg_advisory_unlock_all();
SELECT leader_prune('0');
SELECT leader, end_reason FROM leader_term WHERE election = 'prune own' ORDER BY epoch;
-- The terms that were counted are those that began, whatever is pruned.
SELECT terms FROM leader_status WHERE election = 'prune own';
SELECT leader_fence('prune own', :e1);

-- Rolled back
CALL terms('prune back', 2);
BEGIN;
SELECT leader_prune('0');
SELECT count(*) FROM leader_term WHERE election = 'prune back';
ROLLBACK;
SELECT count(*) FROM leader_term WHERE election = 'prune back';
-- In every isolation level: what ended since the snapshot is taken too.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM leader_term WHERE election = 'prune back';
SELECT leader_prune('0');
COMMIT;
CALL terms('prune back', 2);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT leader_prune('0');
COMMIT;
SELECT count(*) FROM leader_term WHERE election = 'prune back';

-- Arguments
SELECT leader_prune(NULL);
SELECT leader_prune('-1 s');
SELECT leader_prune('-1 month');
SELECT leader_prune('1 month -40 days');
-- Nothing is that old.
SELECT leader_prune('100000000 days');
BEGIN READ ONLY;
SELECT leader_prune('1 h');
ROLLBACK;

-- A caller needs no right on the table, and has none; what is in its search path
-- is not looked at.
CALL terms('prune hostile', 1);
SET ROLE regress_prune_member;
DELETE FROM leader_election_history;
RESET ROLE;
GRANT CREATE ON SCHEMA public TO regress_prune_member;
SET ROLE regress_prune_owner;
CALL terms('prune own', 2);
SET ROLE regress_prune_member;
CREATE TEMP TABLE leader_election_history (election text, ended_at timestamptz);
CREATE FUNCTION pg_temp.hostile(text, text) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE OPERATOR pg_temp.= (leftarg = text, rightarg = text, function = pg_temp.hostile);
CREATE FUNCTION public.hostile(timestamptz, timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$ BEGIN RAISE 'called as %', current_user; END $$;
CREATE OPERATOR public.< (leftarg = timestamptz, rightarg = timestamptz, function = public.hostile);
SET search_path = pg_temp, public, pg_catalog;
SELECT public.leader_prune('0');
SET search_path = '';
SELECT public.leader_prune('0');
RESET search_path;
DROP OPERATOR public.< (timestamptz, timestamptz);
DROP FUNCTION public.hostile;
DROP OPERATOR pg_temp.= (text, text);
DROP FUNCTION pg_temp.hostile;
DROP TABLE pg_temp.leader_election_history;
-- The caller is itself again, also after an error in a block of its own.
SELECT current_user;
\set VERBOSITY default
DO $$
BEGIN
	PERFORM leader_prune('-1 s');
EXCEPTION WHEN invalid_parameter_value THEN
	RAISE NOTICE '%', current_user;
END $$;
\set VERBOSITY sqlstate
SELECT current_user;
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM regress_prune_member;
SELECT election, leader FROM leader_term WHERE election LIKE 'prune %' AND ended_at IS NOT NULL AND end_reason <> 'session_ended' ORDER BY epoch;

DROP PROCEDURE terms;
DROP ROLE regress_prune_owner, regress_prune_member, regress_prune_other;
