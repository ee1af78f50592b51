--
-- leader_drop(): a free election is forgotten.  Guards that its epochs are never
-- repeated (P1), that whoever takes the name next inherits nothing, that a held one
-- cannot be dropped, and that a table that it protected stays protected.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_drop_owner, regress_drop_other;
RESET client_min_messages;

CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
-- In how many of the extension's tables is an election known?
CREATE FUNCTION known(name text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM (
		SELECT election FROM leader_election_state
		UNION ALL SELECT election FROM leader_election_metadata
		UNION ALL SELECT election FROM leader_election_config
		UNION ALL SELECT DISTINCT election FROM leader_election_history
		UNION ALL SELECT election FROM leader_stats) AS x
	WHERE election = name
$$;

--
-- What is held cannot be dropped; what is not there was not dropped.
--
SELECT epoch AS e1 FROM leader_acquire('drop', 'a', '1 h', metadata => '{"host": "one"}') \gset
SELECT leader_configure('drop', ttl => '1 h', lock_delay => '1 h', paused => true, failover_limit => 1);
SELECT leader_drop('drop');
\set VERBOSITY default
SELECT leader_drop('drop');
\set VERBOSITY sqlstate
SELECT leader_check('drop', :e1), known('drop');
SELECT leader_drop('drop of nothing');
SELECT leader_drop(NULL);
SELECT leader_drop('');
SELECT leader_drop(E'a\001');
SELECT leader_drop(repeat('n', 256));
SELECT epoch AS s1 FROM leader_acquire_session('drop session', 'a') \gset
SELECT leader_drop('drop session');
SELECT leader_check('drop session', :s1);

--
-- A free one is forgotten, with all that was known of it.
--
SELECT leader_release('drop', :e1);
SELECT known('drop');
SELECT leader_drop('drop');
SELECT known('drop');
SELECT leader_drop('drop');
SELECT leader_check('drop', :e1), leader_release('drop', :e1);
SELECT is_leader FROM leader_renew('drop', :e1);
SELECT leader_depose('drop');
-- Nothing of that name was ever issued.
SELECT leader_fence('drop', :e1);
-- The name anew: a higher epoch, and nothing is left from before.
SELECT epoch AS e2, epoch > :e1 AS higher, is_leader FROM leader_acquire('drop', 'b', '1 h') \gset
SELECT :'is_leader' AS is_leader, :'higher' AS higher;
SELECT leader, paused, metadata, terms FROM leader_status WHERE election = 'drop';
SELECT leader FROM leader_term WHERE election = 'drop';
SELECT terms, takeovers, renewals, losing_bids, rejected_stale, rejected_unissued FROM leader_stats WHERE election = 'drop';
SELECT leader_fence('drop', :e1);
SELECT leader_fence('drop', :e2);
-- In a loop: epochs go on, far ahead of the clock too.
SELECT setval('leader_election_epoch', greatest(last_value, 1::bigint << 50)) > 0 AS far_ahead FROM leader_election_epoch;
CREATE TABLE drawn (n serial, epoch bigint);
DO $$
DECLARE
	e bigint;
BEGIN
	FOR i IN 1..20 LOOP
		SELECT epoch INTO STRICT e FROM leader_acquire('drop loop', 'a', '1 h') WHERE is_leader;
		INSERT INTO drawn(epoch) VALUES (e);
		COMMIT;
		IF i % 2 = 0 THEN
			INSERT INTO drawn(epoch) SELECT leader_depose('drop loop');
		ELSE
			PERFORM leader_release('drop loop', e);
		END IF;
		COMMIT;
		IF NOT leader_drop('drop loop') THEN
			RAISE 'not dropped';
		END IF;
		COMMIT;
	END LOOP;
END $$;
SELECT count(*), bool_and(grows IS NOT FALSE) AS grows FROM (SELECT lag(epoch) OVER (ORDER BY n) < epoch AS grows FROM drawn) AS x;
-- Within one transaction, too.
DO $$
DECLARE
	e bigint;
BEGIN
	FOR i IN 1..20 LOOP
		SELECT epoch INTO STRICT e FROM leader_acquire('drop loop', 'a', '1 h') WHERE is_leader;
		INSERT INTO drawn(epoch) VALUES (e);
		PERFORM leader_release('drop loop', e);
		IF NOT leader_drop('drop loop') THEN
			RAISE 'not dropped';
		END IF;
	END LOOP;
END $$;
SELECT count(*), bool_and(grows IS NOT FALSE) AS grows FROM (SELECT lag(epoch) OVER (ORDER BY n) < epoch AS grows FROM drawn) AS x;
SELECT known('drop loop');

--
-- One that ran out untaken may be dropped, and one whose session has ended.
--
SELECT epoch AS x1 FROM leader_acquire('drop expired', 'a', '100 ms') \gset
CALL wait_expired('drop expired');
SELECT leader_fence('drop expired', :x1);
SELECT leader_drop('drop expired');
SELECT leader_fence('drop expired', :x1);
SELECT known('drop expired');
-- Who led it has to begin anew.
SELECT is_leader FROM leader_renew('drop expired', :x1);
SELECT epoch > :x1 AS higher FROM leader_acquire('drop expired', 'a', '1 h');
SELECT epoch AS s2 FROM leader_acquire_session('drop ended', 'a') \gset
SELECT pg_advisory_unlock_all();
SELECT leader_drop('drop ended');
SELECT known('drop ended');
SELECT leader_configure('drop never led');
SELECT leader_drop('drop never led');
SELECT leader_configure('drop external', external => true);
SELECT leader_drop('drop external');

--
-- Transactions
--
SELECT epoch AS t1 FROM leader_acquire('drop transaction', 'a', '1 h', metadata => '1') \gset
SELECT leader_release('drop transaction', :t1);
SELECT leader_configure('drop transaction', ttl => '2 h');
BEGIN;
SELECT leader_drop('drop transaction');
SELECT known('drop transaction');
SELECT leader_fence('drop transaction', :t1);
ROLLBACK;
SELECT known('drop transaction');
BEGIN;
SAVEPOINT s;
SELECT leader_drop('drop transaction');
ROLLBACK TO s;
SELECT known('drop transaction');
COMMIT;
SELECT known('drop transaction');
-- Dropped and made anew in one transaction: it is new, and counted as that.
BEGIN;
SELECT leader_drop('drop transaction');
SELECT epoch AS t2, is_leader FROM leader_acquire('drop transaction', 'b', '1 h') \gset
COMMIT;
SELECT :'is_leader' AS is_leader, :t2 > :t1 AS higher;
SELECT leader, terms, metadata FROM leader_status WHERE election = 'drop transaction';
SELECT leader, end_reason FROM leader_term WHERE election = 'drop transaction';
SELECT is_leader FROM leader_acquire('drop neighbour', 'a', '1 h');
SELECT is_leader FROM leader_renew('drop transaction', :t2);
SELECT election, terms, renewals FROM leader_stats WHERE election IN ('drop transaction', 'drop neighbour') ORDER BY 1;
-- Deposed and dropped at once
BEGIN;
SELECT leader_depose('drop transaction') > :t2 AS deposed, leader_drop('drop transaction');
COMMIT;
SELECT known('drop transaction');
BEGIN READ ONLY;
SELECT leader_drop('drop neighbour');
ROLLBACK;
BEGIN READ ONLY;
SELECT leader_drop('drop of nothing');
ROLLBACK;
BEGIN;
SELECT leader_depose('drop neighbour') > 0 AS deposed, leader_drop('drop neighbour');
PREPARE TRANSACTION 'drop';
SELECT leader FROM leader_status WHERE election = 'drop neighbour';

--
-- A table that it protected: no write gets through, whatever token it has.
--
SELECT epoch AS p1 FROM leader_acquire('drop protected', 'a', '1 h') \gset
CREATE TABLE drop_job (n int);
CREATE TABLE drop_row (n int, epoch bigint);
SELECT leader_protect('drop_job', 'drop protected'), leader_protect('drop_row', 'drop protected', 'epoch');
SELECT set_config('leader_election.fence', '"drop protected"=' || :p1, false) IS NOT NULL AS set;
INSERT INTO drop_job VALUES (1);
INSERT INTO drop_row VALUES (1, :p1);
SELECT leader_depose('drop protected') > :p1 AS deposed;
SELECT leader_drop('drop protected');
INSERT INTO drop_job VALUES (2);
UPDATE drop_job SET n = 3;
DELETE FROM drop_job;
TRUNCATE drop_job;
INSERT INTO drop_row VALUES (2, :p1);
INSERT INTO drop_row VALUES (2, NULL);
DELETE FROM drop_row;
SELECT relation, election, in_force FROM leader_protected WHERE election = 'drop protected' ORDER BY relation::text COLLATE "C";
RESET leader_election.fence;
INSERT INTO drop_job VALUES (2);
SELECT n FROM drop_job;
SELECT n FROM drop_row;
-- The name anew: the new leader writes, who led before does not.
SELECT epoch AS p2 FROM leader_acquire('drop protected', 'b', '1 h') \gset
SELECT set_config('leader_election.fence', '"drop protected"=' || :p1, false) IS NOT NULL AS set;
INSERT INTO drop_job VALUES (2);
SELECT set_config('leader_election.fence', '"drop protected"=' || :p2, false) IS NOT NULL AS set;
INSERT INTO drop_job VALUES (2);
INSERT INTO drop_row VALUES (2, NULL);
RESET leader_election.fence;
SELECT n FROM drop_job ORDER BY n;
-- A transaction that drops what it was fenced by
SELECT epoch AS p3 FROM leader_acquire('drop fenced', 'a', '100 ms') \gset
CALL wait_expired('drop fenced');
BEGIN;
SELECT leader_fence('drop fenced', :p3);
SELECT leader_drop('drop fenced');
SELECT leader_fence('drop fenced', :p3);
ROLLBACK;
BEGIN;
SELECT leader_fence('drop fenced', :p3);
SELECT leader_drop('drop fenced');
COMMIT;
SELECT known('drop fenced');

--
-- Rights
--
CREATE ROLE regress_drop_owner;
CREATE ROLE regress_drop_other IN ROLE pg_read_all_stats;
SET ROLE regress_drop_owner;
SELECT leader_configure('drop rights');
SET ROLE regress_drop_other;
SELECT leader_drop('drop rights');
SET ROLE regress_drop_owner;
SELECT leader_drop('drop rights');
-- Who makes a dropped election anew is its owner.
SET ROLE regress_drop_other;
SELECT leader_configure('drop rights');
SET ROLE regress_drop_owner;
SELECT owner FROM leader_status WHERE election = 'drop rights';
SELECT leader_drop('drop rights');
RESET ROLE;

-- The number of elections is limited: a dropped one makes room.
SELECT count(*) AS elections FROM leader_status \gset
SET leader_election.max_elections = :elections;
SET ROLE regress_drop_owner;
SELECT is_leader FROM leader_acquire('drop one more', 'a', '1 h');
RESET ROLE;
SELECT leader_drop('drop rights');
SET ROLE regress_drop_owner;
SELECT is_leader FROM leader_acquire('drop one more', 'a', '1 h');
SELECT is_leader FROM leader_acquire('drop too many', 'a', '1 h');
-- Who leads goes on.
SELECT is_leader FROM leader_acquire('drop one more', 'a', '1 h');
RESET ROLE;
RESET leader_election.max_elections;

DROP TABLE drawn, drop_job, drop_row;
DROP FUNCTION known;
DROP PROCEDURE wait_expired;
DROP ROLE regress_drop_owner, regress_drop_other;
