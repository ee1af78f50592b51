--
-- Session leadership: a term that lives while its session holds the term's
-- advisory lock.  Guards P1 and P4 for such terms as one session sees them, that
-- the loss of the lock is noticed on the very next call, that the lock follows
-- the transaction that took or released the term, and P2 for a session that
-- leads without presenting a token.
--
\set VERBOSITY sqlstate

-- The term locks that this session has, as anybody may find them
CREATE VIEW my_locks AS
SELECT l.classid::bigint << 32 | l.objid::bigint AS epoch, l.mode, l.granted
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.objsubid = 19525 AND l.pid = pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());

CREATE FUNCTION status(name text, OUT leader text, OUT kind text, OUT state text,
					   OUT mine boolean, OUT ttl interval, OUT expires_in boolean, OUT terms bigint)
LANGUAGE sql AS $$
	SELECT s.leader, s.kind, s.state, s.pid = pg_backend_pid(), s.ttl,
		   s.expires_in > '50 min', s.terms
	FROM leader_status s WHERE s.election = name
$$;

CREATE TABLE session_job (v text);
SELECT leader_protect('session_job', 'session_job');
CREATE TABLE stamped (v text, epoch bigint);
SELECT leader_protect('stamped', 'session_job', epoch_column => 'epoch');

--
-- Without a TTL: no times for the leader
--
SELECT is_leader, leader, expires_in, step_down_after, retry_after
FROM leader_acquire_session('session_job', 'a', metadata => '{"port": 1}');
SELECT epoch AS e1 FROM leader_status WHERE election = 'session_job' \gset
SELECT * FROM status('session_job');
SELECT metadata FROM leader_status WHERE election = 'session_job';
SELECT epoch = :e1 AS epoch, mode, granted FROM my_locks;

-- The same again: a no-op, whatever else is said, and no second lock.
SELECT is_leader, epoch = :e1 AS same_epoch, leader, expires_in, step_down_after, retry_after
FROM leader_acquire_session('session_job', 'a', '1 h', '0', '{"port": 2}');
SELECT metadata, ttl FROM leader_status WHERE election = 'session_job';
SELECT count(*) FILTER (WHERE is_leader AND epoch = :e1), count(*)
FROM generate_series(1, 1000) n, leader_acquire_session('session_job', left('a' || n, 1));
SELECT epoch = :e1 AS epoch FROM my_locks;
SELECT * FROM status('session_job');

-- Renewed without times, checked, fenced; a guess is nobody's.
SELECT is_leader, epoch = :e1 AS same_epoch, leader, expires_in, step_down_after, retry_after
FROM leader_renew('session_job', :e1);
SELECT leader_check('session_job', :e1), leader_check('session_job', :e1 + 1), leader_check('session_job', :e1 - 1);
SELECT is_leader FROM leader_renew('session_job', :e1 + 1);
SELECT leader_fence('session_job', :e1);
SELECT leader_fence('session_job', :e1 - 1);
SELECT leader_fence('session_job', :e1 + 1);
SELECT count(*) FROM leader_renew_all('a') WHERE election LIKE 'session%';
SELECT leader_set_metadata('session_job', :e1, '{"port": 3}');
SELECT metadata FROM leader_status WHERE election = 'session_job';

-- A session that leads presents its own token.
INSERT INTO session_job VALUES ('by session');
INSERT INTO stamped VALUES ('by session');
UPDATE stamped SET v = v || ', twice';
INSERT INTO stamped VALUES ('false claim', :e1 - 1);
SELECT v, epoch = :e1 AS epoch FROM stamped;
-- Another token, presented explicitly, comes before it.
BEGIN;
SET LOCAL leader_election.fence = 'session_job=1';
INSERT INTO session_job VALUES ('refused');
ROLLBACK;
DELETE FROM stamped;
TRUNCATE session_job;

-- Another name or another kind in the same session is somebody else.
SELECT is_leader, epoch, leader, expires_in, step_down_after, retry_after > '0' AS retry
FROM leader_acquire_session('session_job', 'b');
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'b', '1 h');
SELECT is_leader, epoch, leader, expires_in FROM leader_acquire('session_job', 'a', '1 h');
SELECT is_leader, leader FROM leader_acquire('session_job', 'b', '1 h');
SELECT leader_check('session_job', :e1);

-- One release frees it.
SELECT leader_release('session_job', :e1 - 1);
SELECT leader_release('session_job', :e1 + 1);
SELECT leader_release('session_job', :e1);
SELECT count(*) FROM my_locks;
SELECT * FROM status('session_job');
SELECT leader_check('session_job', :e1);
SELECT is_leader FROM leader_renew('session_job', :e1);
SELECT leader_fence('session_job', :e1);
INSERT INTO session_job VALUES ('released');
SELECT leader_release('session_job', :e1);

-- The reverse: a lease of the same name, in the same session
SELECT epoch AS e2, is_leader, epoch > :e1 AS grows FROM leader_acquire('session_job', 'a', '1 h') \gset
SELECT :'is_leader', :'grows';
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'a');
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'a', '1 h');
SELECT count(*) FROM my_locks;
SELECT * FROM status('session_job');
-- A lease is not presented by itself.
INSERT INTO session_job VALUES ('lease');
SELECT leader_release('session_job', :e2);

--
-- The name by default: stable within the session, made of what tells whose it is
--
SET application_name = 'closing books';
SELECT leader AS own, epoch AS e3 FROM leader_acquire_session('session_job') \gset
SELECT replace(regexp_replace(:'own', ' [^ ]+$', ' (random)'), pg_backend_pid()::text, '(pid)') AS holder;
SET application_name = 'another';
SELECT is_leader, leader = :'own' AS same, epoch = :e3 AS same_epoch FROM leader_acquire_session('session_job');
SELECT is_leader, leader = :'own' AS same, epoch = :e3 AS same_epoch FROM leader_acquire_session('session_job', :'own');
SELECT is_leader, leader = :'own' AS same FROM leader_acquire_session('session_job 2');
SELECT is_leader FROM leader_acquire_session('session_job', 'other');
SELECT election, leader_release(election, epoch) FROM leader_status WHERE leader = :'own' ORDER BY 1;
DISCARD ALL;
SELECT leader = :'own' AS same FROM leader_acquire_session('session_job');
SELECT leader AS own2 FROM leader_status WHERE election = 'session_job' \gset
SELECT pg_advisory_unlock_all();

--
-- With a TTL: the times of a lease
--
SELECT epoch AS t1 FROM leader_acquire_session('session_job', 'a', '1 h') \gset
SELECT is_leader, epoch = :t1 AS same_epoch, expires_in BETWEEN '50 min' AND '1 h' AS expires_in,
	   step_down_after BETWEEN '30 min' AND '40 min' AS step_down_after,
	   retry_after BETWEEN '15 min' AND '20 min' AS retry_after
FROM leader_acquire_session('session_job', 'a');
SELECT is_leader, epoch = :t1 AS same_epoch, expires_in BETWEEN '50 min' AND '1 h' AS expires_in,
	   step_down_after BETWEEN '30 min' AND '40 min' AS step_down_after
FROM leader_renew('session_job', :t1);
SELECT leader, kind, state, mine, ttl, expires_in FROM status('session_job');
SELECT epoch = :t1 AS epoch, mode FROM my_locks;
SELECT leader_check('session_job', :t1);
-- A session renews its terms one by one, leases are renewed together.
SELECT epoch AS l1 FROM leader_acquire('session lease', 'a', '1 h') \gset
SELECT election, epoch = :l1 AS epoch FROM leader_renew_all('a') WHERE election LIKE 'session%';
SELECT is_leader, leader, expires_in > '50 min' AS expires_in FROM leader_acquire_session('session_job', 'b', '1 h');
SELECT is_leader, leader, expires_in > '50 min' AS expires_in FROM leader_acquire('session_job', 'a', '1 h');
INSERT INTO session_job VALUES ('with ttl');
SELECT leader_fence('session_job', :t1);
SELECT leader_release('session_job', :t1), leader_release('session lease', :l1);
SELECT count(*) FROM my_locks;
INSERT INTO session_job VALUES ('released');
TABLE session_job;

-- It ends when its time has run out, though the session still has its lock.
SELECT epoch AS t2 FROM leader_acquire_session('session_job', 'a', '100 ms') \gset
DO $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = 'session_job') = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT epoch = :t2 AS epoch FROM my_locks;
SELECT * FROM status('session_job');
SELECT leader_check('session_job', :t2);
SELECT is_leader, epoch FROM leader_renew('session_job', :t2);
SELECT leader_set_metadata('session_job', :t2, '{}');
-- Nobody has taken over: still current for the fence.
SELECT leader_fence('session_job', :t2);
INSERT INTO session_job VALUES ('ran out');
-- The next term is new, also for the same holder in the same session, and the
-- lock of the old one goes with it.
BEGIN;
SELECT epoch AS t3, is_leader, epoch > :t2 AS grows FROM leader_acquire_session('session_job', 'a', '1 h') \gset
SELECT :'is_leader', :'grows';
ROLLBACK;
SELECT leader_check('session_job', :t2), leader_check('session_job', :t3);
SELECT is_leader FROM leader_renew('session_job', :t2);
SELECT epoch = :t2 AS epoch FROM my_locks;
SELECT epoch AS t4, is_leader, epoch > :t3 AS grows FROM leader_acquire_session('session_job', 'a', '1 h') \gset
SELECT :'is_leader', :'grows';
SELECT epoch = :t4 AS epoch FROM my_locks;
SELECT leader_check('session_job', :t2), leader_check('session_job', :t4);
SELECT leader_fence('session_job', :t2);
INSERT INTO session_job VALUES ('in the next term');
SELECT leader_release('session_job', :t4);
TABLE session_job;
SELECT count(*) FROM my_locks;

--
-- The lock is lost: noticed on the very next call
--
SELECT epoch AS u1 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_check('session_job', :u1);
INSERT INTO session_job VALUES ('u1');
SELECT pg_advisory_unlock_all();
SELECT leader_check('session_job', :u1);
INSERT INTO session_job VALUES ('unlocked');
SELECT * FROM status('session_job');
SELECT is_leader, epoch FROM leader_renew('session_job', :u1);
SELECT leader_set_metadata('session_job', :u1, '{}');
SELECT epoch AS u2, is_leader, epoch > :u1 AS grows FROM leader_acquire_session('session_job', 'a') \gset
SELECT :'is_leader', :'grows', leader_check('session_job', :u1), leader_check('session_job', :u2);
SELECT leader_fence('session_job', :u1);
INSERT INTO session_job VALUES ('u2');
SELECT epoch = :u2 AS epoch FROM my_locks;
DISCARD ALL;
INSERT INTO session_job VALUES ('discarded');
SELECT leader_check('session_job', :u2);
SELECT * FROM status('session_job');
-- Whoever comes first, of whatever kind, has the next term.
SELECT epoch AS u3, is_leader, epoch > :u2 AS grows FROM leader_acquire('session_job', 'b', '1 h') \gset
SELECT :'is_leader', :'grows';
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'a');
SELECT leader_release('session_job', :u3);
-- With a TTL too
SELECT epoch AS u4 FROM leader_acquire_session('session_job', 'a', '1 h') \gset
DISCARD ALL;
SELECT is_leader, epoch FROM leader_renew('session_job', :u4);
SELECT leader_check('session_job', :u4);
SELECT is_leader, epoch > :u4 AS grows FROM leader_acquire_session('session_job', 'a', '1 h');
SELECT pg_advisory_unlock_all();
-- In the middle of a statement
SELECT epoch AS u5 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_check('session_job', :u5) AS before, pg_advisory_unlock_all(), leader_check('session_job', :u5) AS after;
-- A term that has lost its session may be released by whoever has the rights.
SELECT leader_release('session_job', :u5), leader_release('session_job', :u5);
SELECT * FROM status('session_job');
-- The application's own advisory locks are none of ours, nor ours theirs.
SELECT epoch AS u6 FROM leader_acquire_session('session_job', 'a') \gset
SELECT pg_advisory_lock(:u6), pg_advisory_lock((:u6 >> 32)::int, 1), pg_try_advisory_xact_lock_shared(:u6);
SELECT pg_advisory_unlock(:u6), pg_advisory_unlock((:u6 >> 32)::int, 1);
SELECT leader_check('session_job', :u6);
SELECT leader_release('session_job', :u6);
TABLE session_job;
TRUNCATE session_job;
SELECT epoch AS u7 FROM leader_acquire_session('session_job', 'a') \gset
TRUNCATE session_job;

--
-- A fence outlasts the lock, until somebody takes over
--
BEGIN;
SELECT leader_fence('session_job', :u7);
INSERT INTO session_job VALUES ('fenced');
SELECT pg_advisory_unlock_all();
SELECT leader_check('session_job', :u7);
INSERT INTO session_job VALUES ('fenced, unlocked');
COMMIT;
TABLE session_job;
-- Its own next term takes over from it.
SELECT epoch AS u8 FROM leader_acquire_session('session_job', 'a') \gset
BEGIN;
SELECT leader_fence('session_job', :u8);
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('session_job', 'a');
COMMIT;
SELECT leader_check('session_job', :u8);
-- Without a fence, the session's token is gone with the lock.
SELECT epoch AS u9 FROM leader_acquire_session('session_job', 'a') \gset
BEGIN;
INSERT INTO session_job VALUES ('before');
SELECT pg_advisory_unlock_all();
INSERT INTO session_job VALUES ('after');
ROLLBACK;
TABLE session_job;

--
-- Transactions: the lock goes where the term goes
--
SELECT epoch AS x0 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_release('session_job', :x0);
-- Rolled back: nobody's
BEGIN;
SELECT epoch AS x1 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_check('session_job', :x1);
SELECT is_leader, epoch = :x1 AS same_epoch, expires_in FROM leader_renew('session_job', :x1);
SELECT is_leader, epoch = :x1 AS same_epoch FROM leader_acquire_session('session_job', 'a');
SELECT is_leader FROM leader_acquire_session('session_job', 'b');
SELECT is_leader FROM leader_acquire('session_job', 'a', '1 h');
INSERT INTO session_job VALUES ('rolled back');
SELECT epoch = :x1 AS epoch FROM my_locks;
SELECT leader, kind, state, mine FROM status('session_job');
ROLLBACK;
SELECT count(*) FROM my_locks;
SELECT leader_check('session_job', :x1);
SELECT leader, kind, state, mine FROM status('session_job');
SELECT leader_fence('session_job', :x1);
INSERT INTO session_job VALUES ('rolled back');
-- By an error
BEGIN;
SELECT epoch AS x1 FROM leader_acquire_session('session_job', 'a') \gset
SELECT 1 / 0;
COMMIT;
SELECT count(*) FROM my_locks;
-- Committed
BEGIN;
SELECT epoch AS x2, epoch > :x1 AS grows FROM leader_acquire_session('session_job', 'a') \gset
INSERT INTO session_job VALUES ('committed');
COMMIT;
SELECT :'grows', leader_check('session_job', :x2);
SELECT epoch = :x2 AS epoch FROM my_locks;
-- Rolling back a transaction that only took it again changes nothing.
BEGIN;
SELECT epoch = :x2 AS same_epoch FROM leader_acquire_session('session_job', 'a');
ROLLBACK;
SELECT leader_check('session_job', :x2);
SELECT epoch = :x2 AS epoch FROM my_locks;
-- A release that is rolled back: still leading, by the same lock
BEGIN;
SELECT leader_release('session_job', :x2);
SELECT leader_check('session_job', :x2);
SELECT is_leader FROM leader_renew('session_job', :x2);
SELECT leader_fence('session_job', :x2);
ROLLBACK;
BEGIN;
SELECT leader_release('session_job', :x2);
SELECT epoch = :x2 AS epoch FROM my_locks;
INSERT INTO session_job VALUES ('after the release');
ROLLBACK;
SELECT epoch = :x2 AS epoch FROM my_locks;
SELECT leader_check('session_job', :x2);
SELECT is_leader, epoch = :x2 AS same_epoch FROM leader_acquire_session('session_job', 'a');
INSERT INTO session_job VALUES ('release rolled back');
SELECT leader, kind, state, mine FROM status('session_job');
-- A write, then a release that commits: the write was the leader's.
BEGIN;
INSERT INTO session_job VALUES ('before the release');
SELECT leader_release('session_job', :x2);
COMMIT;
SELECT count(*) FROM my_locks;
SELECT leader_check('session_job', :x2);
TABLE session_job;
-- Released and taken anew in one transaction: one new term, one lock
SELECT epoch AS x3 FROM leader_acquire_session('session_job', 'a') \gset
BEGIN;
SELECT leader_release('session_job', :x3);
SELECT epoch AS x4, epoch > :x3 AS grows FROM leader_acquire_session('session_job', 'a') \gset
SELECT :'grows', leader_check('session_job', :x3), leader_check('session_job', :x4);
ROLLBACK;
SELECT leader_check('session_job', :x3), leader_check('session_job', :x4);
SELECT epoch = :x3 AS epoch FROM my_locks;
BEGIN;
SELECT leader_release('session_job', :x3);
SELECT epoch AS x5, epoch > :x4 AS grows FROM leader_acquire_session('session_job', 'b') \gset
COMMIT;
SELECT :'grows', leader_check('session_job', :x3), leader_check('session_job', :x5);
SELECT epoch = :x5 AS epoch FROM my_locks;
SELECT leader_release('session_job', :x5);
-- Taken and released in one transaction
BEGIN;
SELECT epoch AS x6 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_release('session_job', :x6);
SELECT leader_check('session_job', :x6);
COMMIT;
SELECT count(*) FROM my_locks;
SELECT leader_check('session_job', :x6);
SELECT leader, kind, state, mine FROM status('session_job');

-- Savepoints
BEGIN;
SAVEPOINT one;
SELECT epoch AS s1 FROM leader_acquire_session('session_job', 'a') \gset
ROLLBACK TO one;
SELECT leader_check('session_job', :s1);
SELECT count(*) FROM my_locks;
INSERT INTO session_job VALUES ('savepoint');
ROLLBACK TO one;
SELECT epoch AS s2, epoch > :s1 AS grows FROM leader_acquire_session('session_job', 'b') \gset
SELECT :'grows', leader_check('session_job', :s2);
RELEASE one;
SAVEPOINT two;
SELECT leader_release('session_job', :s2);
SELECT leader_check('session_job', :s2);
ROLLBACK TO two;
SELECT leader_check('session_job', :s2);
INSERT INTO session_job VALUES ('after ROLLBACK TO');
COMMIT;
SELECT leader_check('session_job', :s2);
SELECT epoch = :s2 AS epoch FROM my_locks;
BEGIN;
SAVEPOINT three;
SELECT leader_release('session_job', :s2);
RELEASE three;
COMMIT;
SELECT count(*) FROM my_locks;
SELECT leader, kind, state, mine FROM status('session_job');

-- Exception blocks
\set VERBOSITY terse
DO $$
DECLARE
	first bigint;
	second bigint;
BEGIN
	BEGIN
		SELECT epoch INTO first FROM leader_acquire_session('session_job', 'a');
		RAISE NOTICE 'inside: leads %, locks %', leader_check('session_job', first), (SELECT count(*) FROM my_locks);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'caught: leads %, locks %', leader_check('session_job', first), (SELECT count(*) FROM my_locks);
	END;
	SELECT epoch INTO second FROM leader_acquire_session('session_job', 'a');
	BEGIN
		RAISE NOTICE 'released: %', leader_release('session_job', second);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'caught: leads %, locks %', leader_check('session_job', second), (SELECT count(*) FROM my_locks);
	END;
	BEGIN
		PERFORM pg_advisory_unlock_all();
		INSERT INTO session_job VALUES ('unlocked');
	EXCEPTION WHEN SQLSTATE 'LE002' THEN
		-- Unlocking is not undone by a rollback.
		RAISE NOTICE 'caught: leads %, locks %', leader_check('session_job', second), (SELECT count(*) FROM my_locks);
	END;
END $$;
SELECT count(*) FROM my_locks;
SELECT leader, state FROM status('session_job');

-- Procedures that commit
DO $$
DECLARE
	first bigint;
BEGIN
	SELECT epoch INTO first FROM leader_acquire_session('session_job', 'a');
	INSERT INTO session_job VALUES ('procedure 1');
	COMMIT;
	INSERT INTO session_job VALUES ('procedure 2');
	COMMIT;
	PERFORM leader_release('session_job', first);
	ROLLBACK;
	RAISE NOTICE 'after ROLLBACK: leads %, locks %', leader_check('session_job', first), (SELECT count(*) FROM my_locks);
	PERFORM leader_release('session_job', first);
	COMMIT;
	RAISE NOTICE 'after COMMIT: leads %, locks %', leader_check('session_job', first), (SELECT count(*) FROM my_locks);
END $$;
TABLE session_job;

\set VERBOSITY sqlstate

-- Isolation levels change nothing.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM session_job;
SELECT epoch AS i1 FROM leader_acquire_session('session_job', 'a') \gset
INSERT INTO session_job VALUES ('serializable');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM session_job;
SELECT leader_check('session_job', :i1);
SELECT pg_advisory_unlock_all();
SELECT leader_check('session_job', :i1);
SELECT epoch AS i2 FROM leader_acquire_session('session_job', 'a') \gset
SELECT leader_check('session_job', :i1), leader_check('session_job', :i2);
COMMIT;
SELECT leader_check('session_job', :i2);

-- READ ONLY: what writes no row works.
BEGIN READ ONLY;
SELECT is_leader, epoch = :i2 AS same_epoch FROM leader_acquire_session('session_job', 'a');
SELECT is_leader, epoch = :i2 AS same_epoch FROM leader_renew('session_job', :i2);
SELECT leader_check('session_job', :i2);
SELECT leader_fence('session_job', :i2);
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'b');
COMMIT;
BEGIN READ ONLY;
SELECT is_leader FROM leader_acquire_session('session read only', 'a');
ROLLBACK;
BEGIN READ ONLY;
SELECT leader_release('session_job', :i2);
ROLLBACK;
SELECT leader_check('session_job', :i2);
SELECT leader_release('session_job', :i2);

--
-- Several terms in one session
--
SELECT count(*) FILTER (WHERE is_leader)
FROM generate_series(1, 100) n, leader_acquire_session('session many ' || n, 'a', CASE WHEN n % 2 = 0 THEN interval '1 h' END);
SELECT count(*), count(DISTINCT epoch) FROM my_locks;
SELECT count(*) FROM leader_status
WHERE election LIKE 'session many %' AND pid = pg_backend_pid() AND state = 'held' AND leader_check(election, epoch);
SELECT count(*) FILTER (WHERE leader_release(election, epoch)) FROM leader_status
WHERE election LIKE 'session many %' AND terms = 1 AND ttl IS NULL;
SELECT count(*) FROM my_locks;
SELECT pg_advisory_unlock_all();
SELECT count(*) FROM leader_status WHERE election LIKE 'session many %' AND state = 'held';

--
-- Waiting for oneself: answered when the time is over, or at once as the leader
--
SELECT is_leader FROM leader_acquire_session('session_job', 'a', wait => '10 s');
SELECT is_leader FROM leader_acquire_session('session_job', 'a', wait => '10 s');
SELECT is_leader, leader FROM leader_acquire_session('session_job', 'b', wait => '10 ms');
SELECT is_leader, leader FROM leader_acquire('session_job', 'a', '1 h', wait => '10 ms');
SELECT pg_advisory_unlock_all();

--
-- Arguments
--
\set VERBOSITY terse
SELECT leader_acquire_session(NULL);
SELECT leader_acquire_session('');
SELECT leader_acquire_session('session_job', '');
SELECT leader_acquire_session('session_job', E'a\nb');
SELECT leader_acquire_session('session_job', repeat('x', 256));
SELECT leader_acquire_session(repeat('x', 256), 'a');
SELECT leader_acquire_session('session_job', 'a', '99 ms');
SELECT leader_acquire_session('session_job', 'a', '0');
SELECT leader_acquire_session('session_job', 'a', '-1 s');
SELECT leader_acquire_session('session_job', 'a', '25 h');
SELECT leader_acquire_session('session_job', 'a', '1 mon');
SELECT leader_acquire_session('session_job', 'a', NULL, '-1 s');
SELECT leader_acquire_session('session_job', 'a', NULL, '11 s');
SELECT leader_acquire_session('session_job', 'a', NULL, '1 mon');
SELECT leader_acquire_session('session_job', 'a', metadata => to_jsonb(repeat('x', 8192)));
\set VERBOSITY sqlstate
SELECT leader_acquire_session(NULL, 'a');
SELECT leader_acquire_session('session_job', 'a', '1 mon');
SELECT leader_acquire_session('session_job', 'a', metadata => to_jsonb(repeat('x', 8192)));
SELECT count(*) FROM my_locks;
-- A null for what has a default means the default.
SELECT is_leader, expires_in FROM leader_acquire_session('session_job', NULL, NULL, NULL, NULL);
SELECT leader = :'own' AS default_holder, metadata FROM leader_status WHERE election = 'session_job';
SELECT leader_release(election, epoch) FROM leader_status WHERE election = 'session_job';
SELECT is_leader FROM leader_acquire_session('session_job', repeat('x', 255), '24 h');
SELECT pg_advisory_unlock_all();

--
-- Rights
--
CREATE ROLE regress_session_owner;
CREATE ROLE regress_session_other;
SET ROLE regress_session_owner;
SELECT epoch AS p1, is_leader FROM leader_acquire_session('session rights', 'a') \gset
SELECT :'is_leader', leader_check('session rights', :p1);
SELECT owner, pid = pg_backend_pid() AS mine FROM leader_status WHERE election = 'session rights';
-- The session leads, but the role that it has taken on may not know of it.
SET ROLE regress_session_other;
SELECT leader_acquire_session('session rights', 'a');
SELECT leader_acquire_session('session rights', 'b');
SELECT leader_check('session rights', :p1);
SELECT leader_renew('session rights', :p1);
SELECT leader_fence('session rights', :p1);
SELECT leader_release('session rights', :p1);
SELECT leader_set_metadata('session rights', :p1, '{}');
SELECT leader, epoch, kind, state, pid, owner FROM leader_status WHERE election = 'session rights';
RESET ROLE;
SELECT leader_check('session rights', :p1);
SELECT pg_advisory_unlock_all();
-- Nor may it take over when the lock is gone.
SET ROLE regress_session_other;
SELECT leader_acquire_session('session rights', 'b');
SELECT leader_release('session rights', :p1);
RESET ROLE;
GRANT regress_session_owner TO regress_session_other;
SET ROLE regress_session_other;
SELECT is_leader, epoch > :p1 AS grows FROM leader_acquire_session('session rights', 'b');
SELECT leader_release(election, epoch) FROM leader_status WHERE election = 'session rights';
RESET ROLE;
-- Creating an election takes a right, too.
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC;
SET ROLE regress_session_other;
SELECT leader_acquire_session('session rights 2', 'b');
RESET ROLE;
GRANT USAGE ON SEQUENCE leader_election_epoch TO PUBLIC;
SELECT count(*) FROM my_locks;

--
-- The end of the session
--
SELECT epoch AS c1 FROM leader_acquire_session('session_job', 'a') \gset
SELECT epoch AS c2 FROM leader_acquire_session('session_job 2', 'a', '1 h') \gset
\c -
\set VERBOSITY sqlstate
-- The server may take its time to notice; whoever waits is told.
SELECT is_leader, epoch > :c1 AS grows FROM leader_acquire_session('session_job', 'a', wait => '10 s');
SELECT is_leader, epoch > :c2 AS grows FROM leader_acquire('session_job 2', 'a', '1 h', wait => '10 s');
SELECT leader_check('session_job', :c1), leader_check('session_job 2', :c2);
SELECT is_leader FROM leader_renew('session_job 2', :c2);
SELECT leader_fence('session_job', :c1);
-- Another session has another name by default.
SELECT pg_advisory_unlock_all();
SELECT leader <> :'own' AS another FROM leader_acquire_session('session_job');

SELECT count(leader_release(election, epoch)) FROM leader_status
WHERE election LIKE 'session%' AND state <> 'free';
DROP TABLE session_job, stamped;
DROP FUNCTION status;
DROP VIEW my_locks;
DROP ROLE regress_session_other, regress_session_owner;
