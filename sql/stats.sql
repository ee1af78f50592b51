--
-- leader_stats and leader_stats_reset(): what was counted for each election.
-- Guards that every event is counted once and for its own election, that an error
-- does not undo the count of what it refuses, and that counting begins anew with a
-- reset, and with an election that takes the name of a dropped one.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_stats_owner, regress_stats_member, regress_stats_other, regress_stats_monitor;
RESET client_min_messages;

CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CREATE VIEW counted AS
SELECT election, terms, takeovers AS taken, changes_last_hour AS hour, renewals AS renew, losing_bids AS lost,
	   fenced_commits AS fenced, rejected_stale AS stale, rejected_missing AS missing, rejected_unissued AS unissued
FROM leader_stats;

-- The columns
SELECT * FROM leader_stats WHERE false;

--
-- An election without a term has counted nothing.
--
SELECT leader_configure('stats');
SELECT * FROM counted WHERE election = 'stats';
SELECT longest_renewal_gap, stats_reset FROM leader_stats WHERE election = 'stats';

--
-- Terms, renewals, losing bids
--
SELECT clock_timestamp() AS before \gset
SELECT epoch AS e1 FROM leader_acquire('stats', 'a', '1 h') \gset
SELECT * FROM counted WHERE election = 'stats';
SELECT longest_renewal_gap, stats_reset BETWEEN :'before' AND clock_timestamp() AS stats_reset FROM leader_stats WHERE election = 'stats';
SELECT pg_sleep(0.2);
SELECT is_leader FROM leader_renew('stats', :e1);
SELECT is_leader FROM leader_acquire('stats', 'a', '1 h');
SELECT count(*) FROM leader_renew_all('a') WHERE election = 'stats';
SELECT * FROM counted WHERE election = 'stats';
SELECT longest_renewal_gap >= '0.2 s' AS longest FROM leader_stats WHERE election = 'stats';
-- What is no renewal, is none.
SELECT is_leader FROM leader_renew('stats', :e1 + 1);
SELECT leader_check('stats', :e1);
SELECT is_leader FROM leader_acquire('stats', 'b', '1 h');
SELECT is_leader FROM leader_acquire_session('stats', 'b');
-- One call that waits is one bid, however often it looks.
SELECT is_leader FROM leader_acquire('stats', 'b', '1 h', wait => '100 ms');
SELECT * FROM counted WHERE election = 'stats';
-- Held back
SELECT leader_release('stats', :e1);
SELECT leader_configure('stats', paused => true);
SELECT is_leader FROM leader_acquire('stats', 'a', '1 h');
SELECT leader_configure('stats', paused => false);
SELECT * FROM counted WHERE election = 'stats';
-- What is rolled back was no term; a losing bid was one.
BEGIN;
SELECT is_leader FROM leader_acquire('stats', 'a', '1 h');
SELECT is_leader FROM leader_acquire('stats', 'b', '1 h');
ROLLBACK;
SELECT * FROM counted WHERE election = 'stats';
-- Takeovers: after an expiry and a session's end, not after a release or a depose
SELECT is_leader FROM leader_acquire('stats', 'a', '100 ms');
CALL wait_expired('stats');
SELECT is_leader FROM leader_acquire_session('stats', 'a');
SELECT pg_advisory_unlock_all();
SELECT epoch AS e2 FROM leader_acquire_session('stats', 'b') \gset
SELECT leader_depose('stats') > :e2 AS deposed;
SELECT epoch AS e3 FROM leader_acquire_session('stats', 'c') \gset
SELECT * FROM counted WHERE election = 'stats';
-- A term of a session without a TTL needs no renewal; a renewal is none.
SELECT is_leader FROM leader_renew('stats', :e3);
SELECT is_leader FROM leader_acquire_session('stats', 'c');
SELECT renewals FROM leader_stats WHERE election = 'stats';

--
-- Fences: commits and rejections
--
SELECT leader_stats_reset('stats');
CREATE TABLE stats_job (n int);
CREATE TABLE stats_row (n int, epoch bigint);
SELECT leader_protect('stats_job', 'stats'), leader_protect('stats_row', 'stats', 'epoch');
-- Each commit counts once, whatever it wrote, and those of the session too.
INSERT INTO stats_job VALUES (1);
BEGIN;
SELECT leader_fence('stats', :e3);
INSERT INTO stats_job VALUES (2), (3);
INSERT INTO stats_row VALUES (1, NULL), (2, :e3);
COMMIT;
SELECT fenced, stale, missing, unissued FROM counted WHERE election = 'stats';
SELECT leader_release('stats', :e3);
SELECT epoch AS e4 FROM leader_acquire('stats', 'd', '1 h') \gset
BEGIN;
SELECT leader_fence('stats', :e4);
COMMIT;
BEGIN;
SELECT leader_fence('stats', :e4);
INSERT INTO stats_job VALUES (4);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT leader_fence('stats', :e4);
ROLLBACK TO s;
COMMIT;
SELECT fenced, stale, missing, unissued FROM counted WHERE election = 'stats';
-- Rejections, each in an error, and in one that is caught
SELECT leader_fence('stats', :e3);
SELECT leader_fence('stats', :e4 + 1000000000);
INSERT INTO stats_job VALUES (5);
INSERT INTO stats_row VALUES (5, :e3);
INSERT INTO stats_row VALUES (5, NULL);
BEGIN;
SAVEPOINT s;
INSERT INTO stats_row VALUES (5, :e4 + 1000000000);
ROLLBACK;
DO $$
BEGIN
	FOR i IN 1..10 LOOP
		BEGIN
			INSERT INTO stats_job VALUES (6);
			RAISE EXCEPTION 'written';
		EXCEPTION WHEN SQLSTATE 'LE002' THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT fenced, stale, missing, unissued FROM counted WHERE election = 'stats';
-- A commit that finds its token stale
BEGIN;
SELECT leader_fence('stats', :e4);
SELECT leader_release('stats', :e4);
SELECT leader_fence('stats', :e4);
ROLLBACK;
SELECT fenced, stale, missing, unissued FROM counted WHERE election = 'stats';
-- Names that are no elections are not counted, nor kept.
SELECT leader_fence('stats of nothing', 1);
SELECT count(*) FROM leader_stats WHERE election = 'stats of nothing';

--
-- Two elections are counted apart; a reset is of one, or of all that one may steer.
--
SELECT is_leader FROM leader_acquire('stats second', 'a', '1 h');
SELECT is_leader FROM leader_acquire('stats second', 'b', '1 h');
SELECT * FROM counted WHERE election = 'stats second';
SELECT clock_timestamp() AS before \gset
SELECT leader_stats_reset('stats');
SELECT * FROM counted WHERE election LIKE 'stats%' ORDER BY election COLLATE "C";
SELECT election, longest_renewal_gap, stats_reset >= :'before' AS anew FROM leader_stats WHERE election LIKE 'stats%' ORDER BY election COLLATE "C";
SELECT leader_stats_reset();
SELECT election, stats_reset >= :'before' AS anew FROM leader_stats WHERE election LIKE 'stats%' ORDER BY election COLLATE "C";
-- It takes effect at once, whatever becomes of the transaction.
SELECT is_leader FROM leader_acquire('stats second', 'b', '1 h');
BEGIN;
SELECT leader_stats_reset('stats second');
ROLLBACK;
SELECT * FROM counted WHERE election = 'stats second';
-- The number of terms of the election itself does not begin anew.
SELECT terms FROM leader_status WHERE election = 'stats second';
SELECT leader_stats_reset('stats of nothing');
SELECT leader_stats_reset('');
SELECT leader_stats_reset(repeat('n', 256));
SELECT leader_stats_reset(NULL);

--
-- A dropped election is forgotten; the next one of the name begins anew.
--
SELECT is_leader FROM leader_acquire('stats second', 'b', '1 h');
SELECT leader_depose('stats second') > 0 AS deposed;
BEGIN;
SELECT leader_drop('stats second');
ROLLBACK;
SELECT lost FROM counted WHERE election = 'stats second';
SELECT leader_drop('stats second');
SELECT leader_configure('stats second');
SELECT * FROM counted WHERE election = 'stats second';
SELECT is_leader FROM leader_acquire('stats second', 'b', '1 h');
SELECT * FROM counted WHERE election = 'stats second';
-- Also when that is one transaction: what it does is counted for it, and not for
-- whoever comes next.
BEGIN;
SELECT leader_depose('stats second') > 0 AS deposed, leader_drop('stats second');
SELECT epoch AS e5 FROM leader_acquire('stats second', 'c', '1 h') \gset
COMMIT;
SELECT is_leader FROM leader_acquire('stats third', 'a', '1 h');
SELECT is_leader FROM leader_renew('stats second', :e5);
SELECT is_leader FROM leader_renew('stats second', :e5);
SELECT * FROM counted WHERE election IN ('stats second', 'stats third') ORDER BY election COLLATE "C";

--
-- Rights: as in leader_status
--
CREATE ROLE regress_stats_owner;
CREATE ROLE regress_stats_member IN ROLE regress_stats_owner;
CREATE ROLE regress_stats_other;
CREATE ROLE regress_stats_monitor IN ROLE pg_read_all_stats;
GRANT SELECT ON counted TO PUBLIC;
SET ROLE regress_stats_owner;
SELECT is_leader FROM leader_acquire('stats rights', 'a', '1 h');
SELECT is_leader FROM leader_acquire('stats rights', 'b', '1 h');
SET ROLE regress_stats_other;
SELECT * FROM leader_stats WHERE election = 'stats rights' \gx
SELECT count(terms), count(losing_bids), count(stats_reset) FROM leader_stats;
SELECT leader_stats_reset('stats rights');
SELECT leader_stats_reset();
SET ROLE regress_stats_monitor;
SELECT * FROM counted WHERE election = 'stats rights';
SELECT leader_stats_reset('stats rights');
SELECT leader_stats_reset();
SET ROLE regress_stats_member;
SELECT * FROM counted WHERE election = 'stats rights';
SELECT leader_stats_reset();
SELECT * FROM counted WHERE election = 'stats rights';
SET ROLE regress_stats_monitor;
SELECT lost FROM counted WHERE election = 'stats rights';
RESET ROLE;
-- A table of mine that names somebody's election: my writes are refused, and that
-- is counted; more about it I am not told.
SELECT * FROM counted WHERE election = 'stats';
SELECT leader_stats_reset('stats');
CREATE TABLE stats_foreign (n int);
SELECT leader_protect('stats_foreign', 'stats');
GRANT ALL ON stats_foreign TO regress_stats_other;
SET ROLE regress_stats_other;
INSERT INTO stats_foreign VALUES (1);
RESET ROLE;
SELECT missing FROM counted WHERE election = 'stats';

DROP TABLE stats_job, stats_row, stats_foreign;
DROP VIEW counted;
DROP PROCEDURE wait_expired;
DROP ROLE regress_stats_member, regress_stats_owner, regress_stats_other, regress_stats_monitor;
