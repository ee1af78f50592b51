--
-- The history of terms: leader_term tells when each began, and when and why it
-- ended.  Guards that it tells the truth (an end is when the lease ran out, not
-- when somebody looked; a session that is gone is never shown as leading), that a
-- row goes with its transaction, and who may read it.
--
\set VERBOSITY sqlstate

-- What can be said of times: the order of what happened.
CREATE VIEW terms AS
SELECT election, row_number() OVER w AS n, leader, end_reason,
	   ended_at IS NULL AS open,
	   acquired_at <= ended_at AS begins_first,
	   lag(ended_at) OVER w <= acquired_at AS no_overlap,
	   lag(epoch) OVER w < epoch AS grows
FROM leader_term
WINDOW w AS (PARTITION BY election ORDER BY epoch)
ORDER BY election COLLATE "C", n;

CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;

--
-- Released: the term of now has no end, and has one as soon as it is released.
--
SELECT clock_timestamp() AS before \gset
SELECT epoch AS e1 FROM leader_acquire('history released', 'a', '1 h') \gset
SELECT * FROM terms WHERE election = 'history released';
SELECT epoch = :e1 AS epoch, acquired_at BETWEEN :'before' AND clock_timestamp() AS acquired_at, ended_at, end_reason
FROM leader_term WHERE election = 'history released';
SELECT acquired_at = (SELECT acquired_at FROM leader_status WHERE election = 'history released') AS same_start
FROM leader_term WHERE election = 'history released';
-- Renewals leave no trace.
SELECT is_leader FROM leader_renew('history released', :e1);
SELECT is_leader FROM leader_acquire('history released', 'b', '1 h');
SELECT count(*) FROM leader_term WHERE election = 'history released';
SELECT clock_timestamp() AS before \gset
SELECT leader_release('history released', :e1);
SELECT * FROM terms WHERE election = 'history released';
SELECT epoch = :e1 AS epoch, ended_at BETWEEN :'before' AND clock_timestamp() AS ended_at
FROM leader_term WHERE election = 'history released';
-- A release of what is over adds nothing.
SELECT leader_release('history released', :e1);
SELECT count(*) FROM leader_term WHERE election = 'history released';
SELECT epoch AS e2 FROM leader_acquire('history released', 'b', '1 h') \gset
SELECT leader_release('history released', :e2);
SELECT epoch AS e3 FROM leader_acquire_session('history released', 'a') \gset
SELECT * FROM terms WHERE election = 'history released';
SELECT leader_release('history released', :e3);
SELECT epoch AS e4 FROM leader_acquire_session('history released', 'a', '1 h') \gset
SELECT leader_release('history released', :e4);
SELECT * FROM terms WHERE election = 'history released';

--
-- Expired: it ended when the lease ran out, also if nobody took over until long
-- after that.
--
SELECT epoch AS x1 FROM leader_acquire('history expired', 'a', '100 ms') \gset
CALL wait_expired('history expired');
SELECT clock_timestamp() AS seen \gset
-- Known at once, though the row is as it was
SELECT * FROM terms WHERE election = 'history expired';
SELECT ended_at <= :'seen' AS ended_before_seen, acquired_at < :'seen'::timestamptz - '100 ms'::interval AS whole_lease
FROM leader_term WHERE election = 'history expired';
SELECT leader, state FROM leader_status WHERE election = 'history expired';
-- The next one begins later: the end stays where it was.
SELECT epoch AS x2 FROM leader_acquire('history expired', 'b', '1 h') \gset
SELECT * FROM terms WHERE election = 'history expired';
SELECT ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x1;
SELECT acquired_at >= :'seen' AS begun_after_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x2;
SELECT leader_release('history expired', :x2);
-- A term of a session that ran out, its session being there
SELECT epoch AS x3 FROM leader_acquire_session('history expired', 'a', '100 ms') \gset
CALL wait_expired('history expired');
SELECT clock_timestamp() AS seen \gset
SELECT leader, end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x3;
SELECT epoch AS x4 FROM leader_acquire_session('history expired', 'a', '1 h') \gset
SELECT leader, end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x3;
SELECT leader_release('history expired', :x4);
-- It ran out first, and its session ended later: whichever came first counts.
SELECT epoch AS x5 FROM leader_acquire_session('history expired', 'a', '100 ms') \gset
CALL wait_expired('history expired');
SELECT clock_timestamp() AS seen \gset
SELECT pg_advisory_unlock_all();
SELECT end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x5;
SELECT epoch AS x6 FROM leader_acquire('history expired', 'b', '1 h') \gset
SELECT end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x5;
SELECT leader_release('history expired', :x6);
SELECT * FROM terms WHERE election = 'history expired';
-- One that ran out and is released all the same: it stays what it was shown as.
SELECT epoch AS x7 FROM leader_acquire('history expired', 'a', '100 ms') \gset
CALL wait_expired('history expired');
SELECT clock_timestamp() AS seen \gset
SELECT leader, end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x7;
SELECT leader_release('history expired', :x7);
SELECT leader, end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x7;
SELECT epoch AS x8 FROM leader_acquire_session('history expired', 'a', '100 ms') \gset
CALL wait_expired('history expired');
SELECT clock_timestamp() AS seen \gset
SELECT leader_release('history expired', :x8);
SELECT leader, end_reason, ended_at <= :'seen' AS ended_before_seen FROM leader_term WHERE election = 'history expired' AND epoch = :x8;

--
-- The session ended: shown as ended at once, by whatever way it lost its lock
--
SELECT epoch AS s1 FROM leader_acquire_session('history ended', 'a') \gset
SELECT * FROM terms WHERE election = 'history ended';
SELECT clock_timestamp() AS before \gset
SELECT pg_advisory_unlock_all();
SELECT * FROM terms WHERE election = 'history ended';
SELECT ended_at BETWEEN :'before' AND clock_timestamp() AS ended_at FROM leader_term WHERE election = 'history ended';
SELECT epoch AS s2 FROM leader_acquire_session('history ended', 'a', '1 h') \gset
SELECT * FROM terms WHERE election = 'history ended';
SELECT ended_at >= :'before' AS ended_at FROM leader_term WHERE election = 'history ended' AND epoch = :s1;
DISCARD ALL;
SELECT * FROM terms WHERE election = 'history ended';
SELECT epoch AS s3 FROM leader_acquire('history ended', 'b', '1 h') \gset
SELECT * FROM terms WHERE election = 'history ended';
SELECT leader_release('history ended', :s3);
SELECT epoch AS s4 FROM leader_acquire_session('history ended', 'a') \gset
\c -
\set VERBOSITY sqlstate
SELECT epoch AS s5 FROM leader_acquire_session('history ended', 'c', wait => '10 s') \gset
SELECT * FROM terms WHERE election = 'history ended';
SELECT leader_release('history ended', :s5);
-- Many in a row: no term overlaps the next one, whoever ends it and how.
DO $$
BEGIN
	FOR i IN 1..200 LOOP
		PERFORM leader_acquire_session('history row', 'a');
		COMMIT;
		PERFORM pg_advisory_unlock_all();
	END LOOP;
	FOR i IN 1..10 LOOP
		PERFORM leader_acquire('history row', 'lease ' || i, '100 ms', wait => '10 s');
		COMMIT;
		PERFORM leader_acquire_session('history row', 'session ' || i, '100 ms', wait => '10 s');
		COMMIT;
	END LOOP;
	CALL wait_expired('history row');
END $$;
SELECT bool_and(begins_first IS NOT FALSE) AS begins_first, bool_and(no_overlap IS NOT FALSE) AS no_overlap,
	   bool_and(grows IS NOT FALSE) AS grows,
	   count(*) FILTER (WHERE end_reason = 'session_ended') AS session_ended,
	   count(*) FILTER (WHERE end_reason = 'expired') AS expired
FROM terms WHERE election = 'history row';

--
-- What is rolled back leaves nothing.
--
SELECT epoch AS r1 FROM leader_acquire('history rolled back', 'a', '1 h') \gset
BEGIN;
SELECT leader_release('history rolled back', :r1);
SELECT leader, end_reason FROM leader_term WHERE election = 'history rolled back';
ROLLBACK;
SELECT * FROM terms WHERE election = 'history rolled back';
BEGIN;
SAVEPOINT one;
SELECT leader_release('history rolled back', :r1);
ROLLBACK TO one;
COMMIT;
SELECT * FROM terms WHERE election = 'history rolled back';
SELECT leader_release('history rolled back', :r1);
BEGIN;
SELECT epoch AS r2 FROM leader_acquire_session('history rolled back', 'b') \gset
SELECT * FROM terms WHERE election = 'history rolled back';
ROLLBACK;
SELECT * FROM terms WHERE election = 'history rolled back';
-- A takeover that is rolled back: the term had ended, and goes on having ended.
SELECT epoch AS r3 FROM leader_acquire_session('history rolled back', 'c') \gset
SELECT pg_advisory_unlock_all();
BEGIN;
SELECT epoch AS r4 FROM leader_acquire('history rolled back', 'd', '1 h') \gset
SELECT * FROM terms WHERE election = 'history rolled back';
ROLLBACK;
SELECT * FROM terms WHERE election = 'history rolled back';
-- Begun and ended in one transaction: a term all the same
BEGIN;
SELECT epoch AS r5 FROM leader_acquire_session('history rolled back', 'e') \gset
SELECT leader_release('history rolled back', :r5);
SELECT epoch AS r6 FROM leader_acquire('history rolled back', 'f', '1 h') \gset
COMMIT;
SELECT * FROM terms WHERE election = 'history rolled back';
SELECT leader_release('history rolled back', :r6);

--
-- Switched off: none is kept, the one of now is shown.
--
SET leader_election.history = off;
SELECT epoch AS o1 FROM leader_acquire('history off', 'a', '1 h') \gset
SELECT * FROM terms WHERE election = 'history off';
SELECT leader_release('history off', :o1);
SELECT epoch AS o2 FROM leader_acquire_session('history off', 'b') \gset
SELECT pg_advisory_unlock_all();
SELECT epoch AS o3 FROM leader_acquire('history off', 'c', '1 h') \gset
SELECT * FROM terms WHERE election = 'history off';
RESET leader_election.history;
-- What counts is how it is set when a term ends.
SELECT leader_release('history off', :o3);
SELECT * FROM terms WHERE election = 'history off';

--
-- Rights
--
CREATE ROLE regress_history_owner;
CREATE ROLE regress_history_other;
CREATE ROLE regress_history_watcher IN ROLE pg_read_all_stats;
GRANT SELECT ON terms TO regress_history_owner, regress_history_other, regress_history_watcher;
SET ROLE regress_history_owner;
SELECT epoch AS h1 FROM leader_acquire('history rights', 'a', '1 h') \gset
SELECT leader_release('history rights', :h1);
SELECT epoch AS h2 FROM leader_acquire('history rights', 'b', '1 h') \gset
SELECT leader, epoch IN (:h1, :h2) AS epoch, end_reason FROM leader_term ORDER BY epoch;
SET leader_election.history = off;
-- Somebody who is no member sees no term, past or present, of no election.
SET ROLE regress_history_other;
SELECT count(*) FROM leader_term;
SELECT election FROM leader_status WHERE election = 'history rights';
SELECT count(*) FROM leader_election_history;
SELECT count(*) FROM leader_election_state;
-- A condition that would tell is not asked about rows that may not be seen.
CREATE FUNCTION pg_temp.tell(leader text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE COST 0.0000001 AS $$
BEGIN
	RAISE EXCEPTION 'told: %', leader;
	RETURN true;
END $$;
SELECT count(*) FROM leader_term WHERE pg_temp.tell(leader);
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT count(*) FROM leader_term WHERE pg_temp.tell(leader);
RESET enable_hashjoin;
RESET enable_nestloop;
DROP FUNCTION pg_temp.tell;
SET ROLE regress_history_watcher;
SELECT leader, epoch IN (:h1, :h2) AS epoch, end_reason FROM leader_term WHERE election = 'history rights' ORDER BY epoch;
SELECT count(*) > 10 AS others_too FROM leader_term WHERE election <> 'history rights';
RESET ROLE;
GRANT regress_history_owner TO regress_history_other;
SET ROLE regress_history_other;
SELECT leader, end_reason FROM leader_term ORDER BY epoch;
-- Who ends a term writes its history, without a right on the table.
SELECT leader_release('history rights', :h2);
SELECT leader, end_reason FROM leader_term ORDER BY epoch;
INSERT INTO leader_election_history VALUES ('history rights', 1, 'forged', now(), now(), 'released');
RESET ROLE;
REVOKE regress_history_owner FROM regress_history_other;

--
-- The history goes with the extension, and none of it comes back with another.
--
SELECT epoch AS d1 FROM leader_acquire_session('history released', 'a') \gset
DROP VIEW terms;
SET client_min_messages = warning;
DROP EXTENSION leader_election CASCADE;
CREATE EXTENSION leader_election;
RESET client_min_messages;
SELECT count(*) FROM leader_term;
SELECT leader_check('history released', :d1);
SELECT epoch AS d2, epoch > :d1 AS grows FROM leader_acquire_session('history released', 'a') \gset
SELECT :'grows', leader_check('history released', :d2), leader_check('history released', :d1);
SELECT leader, end_reason FROM leader_term;
SELECT leader_release('history released', :d2);
SELECT leader, end_reason FROM leader_term;

SELECT pg_advisory_unlock_all();
DROP PROCEDURE wait_expired;
DROP ROLE regress_history_other, regress_history_owner, regress_history_watcher;
