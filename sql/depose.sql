--
-- leader_depose(): an operator ends a term.  Guards that the old epoch is refused
-- from then on, by check, renewal and fence, here and where the new number is
-- carried to (P1, P2); that the number it returns is nobody's; and that it takes
-- effect with its transaction, or not at all.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_depose_owner, regress_depose_member, regress_depose_noinherit, regress_depose_other;
RESET client_min_messages;

-- How the calls of an old leader end, in a word each.
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION stands(name text, epoch bigint,
	OUT "check" boolean, OUT renew boolean, OUT fence text)
LANGUAGE plpgsql AS $$
BEGIN
	"check" := leader_check(name, epoch);
	renew := is_leader FROM leader_renew(name, epoch);
	fence := try(format('SELECT leader_fence(%L, %s)', name, epoch));
END $$;
CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;

--
-- A lease
--
SELECT epoch AS e1 FROM leader_acquire('depose', 'a', '1 h') \gset
SELECT clock_timestamp() AS before \gset
SELECT leader_depose('depose') AS d1 \gset
SELECT :d1 > :e1 AS higher;
SELECT * FROM stands('depose', :e1);
SELECT leader_release('depose', :e1), leader_set_metadata('depose', :e1, '{}');
-- What is shown: nobody leads, and when and why that is so.
SELECT leader, state, epoch = :d1 AS number_drawn, expires_in, acquired_at, terms FROM leader_status WHERE election = 'depose';
SELECT leader, epoch = :e1 AS epoch, end_reason, ended_at BETWEEN :'before' AND clock_timestamp() AS ended_at
FROM leader_term WHERE election = 'depose';
-- The number drawn is a token that nobody has.
SELECT * FROM stands('depose', :d1);
SELECT leader_release('depose', :d1);
-- Whoever is next has a higher one, also who was deposed.
SELECT is_leader, epoch AS e2 FROM leader_acquire('depose', 'a', '1 h') \gset
SELECT :'is_leader', :e2 > :d1 AS higher;
SELECT * FROM stands('depose', :e1);
SELECT * FROM stands('depose', :d1);
SELECT * FROM stands('depose', :e2);

-- Each draws anew.
SELECT leader_depose('depose') AS d2 \gset
SELECT :d2 > :e2 AS higher;

--
-- Nobody led: nothing happens, and nothing is drawn.
--
SELECT leader_depose('depose'), leader_depose('depose of nothing');
SELECT epoch = :d2 AS same_number, terms FROM leader_status WHERE election = 'depose';
SELECT count(*) FROM leader_status WHERE election = 'depose of nothing';
SELECT leader_configure('depose never led');
SELECT leader_depose('depose never led');

--
-- Arguments
--
SELECT leader_depose(NULL);
SELECT leader_depose('');
SELECT leader_depose(E'a\tb');
SELECT leader_depose(repeat('n', 256));
SELECT leader_depose(repeat('n', 255));

--
-- One that ran out untaken: it ended then, and not by this.  Its token was still
-- current for the fence, and is not any more.
--
SELECT epoch AS x1 FROM leader_acquire('depose expired', 'a', '100 ms') \gset
CALL wait_expired('depose expired');
SELECT clock_timestamp() AS seen \gset
SELECT * FROM stands('depose expired', :x1);
SELECT leader_depose('depose expired') > :x1 AS deposed;
SELECT * FROM stands('depose expired', :x1);
SELECT end_reason, ended_at <= :'seen' AS ended_before FROM leader_term WHERE election = 'depose expired';
SELECT leader_depose('depose expired');

--
-- Terms of this very session, of both kinds
--
SELECT epoch AS s1 FROM leader_acquire_session('depose session', 'a') \gset
SELECT leader_depose('depose session') > :s1 AS deposed;
SELECT * FROM stands('depose session', :s1);
SELECT leader, state, pid FROM leader_status WHERE election = 'depose session';
-- Its lock is free, and nothing of it stays.
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT epoch AS s2 FROM leader_acquire_session('depose session', 'a', '1 h') \gset
SELECT leader_depose('depose session') > :s2 AS deposed;
SELECT * FROM stands('depose session', :s2);
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- A session that had ended: that is why the term ended, as was shown before.
SELECT epoch AS s3 FROM leader_acquire_session('depose session', 'b') \gset
SELECT pg_advisory_unlock_all();
SELECT end_reason FROM leader_term WHERE election = 'depose session' AND epoch = :s3;
SELECT leader_depose('depose session') > :s3 AS deposed;
SELECT epoch > :s3 AS number_drawn FROM leader_status WHERE election = 'depose session';
SELECT * FROM stands('depose session', :s3);
SELECT epoch AS s4 FROM leader_acquire_session('depose session', 'c', '1 h') \gset
SELECT pg_advisory_unlock_all();
SELECT leader_depose('depose session') > :s4 AS deposed;
SELECT leader, end_reason FROM leader_term WHERE election = 'depose session' ORDER BY epoch;

--
-- Transactions
--
SELECT epoch AS t1 FROM leader_acquire('depose transaction', 'a', '1 h') \gset
BEGIN;
SELECT leader_depose('depose transaction') AS t2 \gset
-- Its own transaction has ended the term, and sees it.
SELECT * FROM stands('depose transaction', :t1);
SELECT leader, state, epoch = :t2 AS number_drawn FROM leader_status WHERE election = 'depose transaction';
SELECT leader_depose('depose transaction');
ROLLBACK;
-- Not at all: the term goes on; the number is not drawn again.
SELECT * FROM stands('depose transaction', :t1);
SELECT leader, state, epoch = :t1 AS own_epoch FROM leader_status WHERE election = 'depose transaction';
SELECT leader, end_reason FROM leader_term WHERE election = 'depose transaction';
BEGIN;
SAVEPOINT s;
SELECT leader_depose('depose transaction') > :t2 AS deposed;
ROLLBACK TO s;
SELECT * FROM stands('depose transaction', :t1);
COMMIT;
SELECT * FROM stands('depose transaction', :t1);
-- Deposed and acquired at once: a new term
BEGIN;
SELECT leader_depose('depose transaction') AS t3 \gset
SELECT epoch AS t4 FROM leader_acquire('depose transaction', 'b', '1 h') \gset
SELECT :t4 > :t3 AS higher;
SELECT * FROM stands('depose transaction', :t4);
COMMIT;
SELECT * FROM stands('depose transaction', :t1);
SELECT * FROM stands('depose transaction', :t3);
SELECT * FROM stands('depose transaction', :t4);
-- A term that its own transaction deposes again
BEGIN;
SELECT leader_depose('depose transaction') > :t4 AS deposed;
SELECT epoch AS t5 FROM leader_acquire_session('depose transaction', 'c') \gset
SELECT leader_depose('depose transaction') > :t5 AS deposed;
COMMIT;
SELECT * FROM stands('depose transaction', :t5);
SELECT leader, end_reason FROM leader_term WHERE election = 'depose transaction' ORDER BY epoch;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- In an exception block
SELECT epoch AS t6 FROM leader_acquire_session('depose transaction', 'd') \gset
DO $$
BEGIN
	PERFORM leader_depose('depose transaction');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	NULL;
END $$;
SELECT * FROM stands('depose transaction', :t6);
BEGIN READ ONLY;
SELECT leader_depose('depose transaction');
ROLLBACK;
BEGIN READ ONLY;
SELECT leader_depose('depose');
COMMIT;
BEGIN;
SELECT leader_depose('depose transaction') > :t6 AS deposed;
PREPARE TRANSACTION 'depose';
SELECT * FROM stands('depose transaction', :t6);

-- A transaction that is fenced by a term, and deposes it, commits: the token was
-- checked when the lock was taken.  Later uses of it are refused.
CREATE TABLE depose_job (done_by text);
SELECT leader_protect('depose_job', 'depose transaction');
BEGIN;
INSERT INTO depose_job VALUES ('d');
SELECT leader_depose('depose transaction') > :t6 AS deposed;
COMMIT;
SELECT * FROM depose_job;
SELECT epoch AS t7 FROM leader_acquire('depose transaction', 'e', '1 h') \gset
BEGIN;
SELECT leader_fence('depose transaction', :t7);
SELECT leader_depose('depose transaction') > :t7 AS deposed;
INSERT INTO depose_job VALUES ('e');
ROLLBACK;
-- Writes in the name of who was deposed
SELECT leader_depose('depose transaction') AS t8 \gset
SELECT set_config('leader_election.fence', '"depose transaction"=' || :t7, false) IS NOT NULL AS set;
INSERT INTO depose_job VALUES ('late');
SELECT set_config('leader_election.fence', '"depose transaction"=' || :t8, false) IS NOT NULL AS set;
INSERT INTO depose_job VALUES ('nobody');
RESET leader_election.fence;
SELECT count(*) FROM depose_job;

--
-- Who is deposed need not wait for anything: metadata, history and delay do not
-- outlive it.
--
SELECT leader_configure('depose delay', lock_delay => '1 h');
SELECT is_leader FROM leader_acquire('depose delay', 'a', '1 h', metadata => '{"host": "one"}');
SELECT leader_depose('depose delay') > 0 AS deposed;
SELECT leader, metadata FROM leader_status WHERE election = 'depose delay';
SELECT is_leader FROM leader_acquire('depose delay', 'b', '1 h');
SELECT leader, metadata FROM leader_status WHERE election = 'depose delay';
SELECT leader_depose('depose delay') > 0 AS deposed;
SELECT is_leader FROM leader_acquire('depose delay', 'b', '100 ms');
CALL wait_expired('depose delay');
SELECT is_leader FROM leader_acquire('depose delay', 'c', '1 h');
SELECT leader_depose('depose delay') > 0 AS deposed;
SELECT is_leader FROM leader_acquire('depose delay', 'c', '1 h');

--
-- Rights: membership in the owner
--
CREATE ROLE regress_depose_owner;
CREATE ROLE regress_depose_member IN ROLE regress_depose_owner;
CREATE ROLE regress_depose_noinherit NOINHERIT IN ROLE regress_depose_owner;
CREATE ROLE regress_depose_other IN ROLE pg_read_all_stats, pg_signal_backend;
SET ROLE regress_depose_owner;
SELECT epoch AS r1 FROM leader_acquire('depose rights', 'a', '1 h') \gset
SET ROLE regress_depose_other;
SELECT leader_depose('depose rights');
SET ROLE regress_depose_noinherit;
SELECT leader_depose('depose rights');
RESET ROLE;
SELECT * FROM stands('depose rights', :r1);
SET ROLE regress_depose_member;
SELECT leader_depose('depose rights') > :r1 AS deposed;
-- Also where nobody leads
SET ROLE regress_depose_other;
SELECT leader_depose('depose rights');
-- No right on the counter is needed, as no election is created.
RESET ROLE;
BEGIN;
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC;
SET LOCAL ROLE regress_depose_owner;
SELECT try('SELECT is_leader FROM leader_acquire(''depose rights'', ''b'', ''1 h'')');
SELECT leader_depose('depose rights') IS NOT NULL AS deposed;
ROLLBACK;
-- A superuser may
SELECT is_leader FROM leader_acquire('depose rights', 'c', '1 h');
SELECT leader_depose('depose rights') > :r1 AS deposed;

SELECT leader_unprotect('depose_job');
DROP TABLE depose_job;
DROP FUNCTION try, stands;
DROP PROCEDURE wait_expired;
DROP ROLE regress_depose_member, regress_depose_noinherit, regress_depose_other, regress_depose_owner;
