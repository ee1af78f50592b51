--
-- leader_configure(): what holds for every term of an election.  Guards that each
-- setting does what it says and nothing else, that NULL leaves it as it is, that
-- what is out of range is refused before anything changes, and who may do it.
--
\set VERBOSITY sqlstate
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_configure_owner, regress_configure_other, regress_configure_both, regress_configure_noinherit, "regress configure ""odd""", regress_configure_gone, regress_configure_renamed, regress_configure_stats;
RESET client_min_messages;

CREATE PROCEDURE wait_expired(name text)
LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT state FROM leader_status WHERE election = name) = 'held' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
-- Everything that is configured, of which the views show a part
CREATE FUNCTION configured(name text, OUT paused boolean, OUT ttl interval, OUT lock_delay interval,
						   OUT failover_limit bigint, OUT failover_window interval, OUT takeovers int, OUT owner name)
LANGUAGE sql AS $$
	SELECT c.paused, c.ttl * interval '1 us', c.lock_delay * interval '1 us',
		   c.failover_limit, c.failover_window * interval '1 us', cardinality(c.takeovers), s.owner
	FROM leader_election_state s LEFT JOIN leader_election_config c USING (election)
	WHERE election = name
$$;

--
-- It creates the election; nothing is configured by being named.
--
SELECT leader_configure('configure');
SELECT election, leader, epoch, kind, state, paused, ttl, expires_in, acquired_at, metadata, owner = current_user AS owner, terms, pid
FROM leader_status WHERE election = 'configure' \gx
SELECT count(*) FROM leader_term WHERE election = 'configure';
SELECT paused, ttl, owner = current_user AS own FROM configured('configure');
-- All at once, and by position
SELECT leader_configure('configure', '20 s', '0.5 s', 3, '10 min', false, current_user, false);
SELECT (configured('configure')).*, count(*) OVER () FROM leader_status WHERE election = 'configure' AND owner = current_user \gset c_
SELECT :'c_paused' AS paused, :'c_ttl' AS ttl, :'c_lock_delay' AS lock_delay, :c_failover_limit AS failover_limit,
	   :'c_failover_window' AS failover_window, :c_takeovers AS takeovers;
-- One at a time: NULL leaves as it is.
SELECT leader_configure('configure', ttl => '30 s');
SELECT leader_configure('configure', lock_delay => NULL);
SELECT leader_configure('configure', failover_limit => 5);
SELECT leader_configure('configure', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT paused, ttl, lock_delay, failover_limit, failover_window, takeovers FROM configured('configure');
SELECT leader_configure('configure', paused => true);
SELECT leader_configure('configure', failover_window => '1 s');
SELECT leader_configure('configure', lock_delay => '0');
SELECT paused, ttl, lock_delay, failover_limit, failover_window, takeovers FROM configured('configure');
SELECT leader_configure('configure', paused => false);
-- The ends of the ranges
SELECT leader_configure('configure', ttl => '100 ms', lock_delay => '1 h', failover_limit => 100, failover_window => '30 days');
SELECT leader_configure('configure', ttl => '24 h', lock_delay => '0', failover_limit => 0, failover_window => '1 s');
SELECT leader_configure('configure', ttl => '1 day');
SELECT paused, ttl, lock_delay, failover_limit, failover_window, takeovers FROM configured('configure');

--
-- What is refused, on an election that exists and on one that does not
--
SELECT leader_configure(NULL);
SELECT leader_configure('');
SELECT leader_configure(E'a\nb');
SELECT leader_configure(repeat('n', 256));
SELECT leader_configure('configure', ttl => '99.999 ms');
SELECT leader_configure('configure', ttl => '24 h 1 us');
SELECT leader_configure('configure', ttl => '0');
SELECT leader_configure('configure', ttl => '-1 s');
SELECT leader_configure('configure', ttl => '1 month');
SELECT leader_configure('configure', lock_delay => '-1 us');
SELECT leader_configure('configure', lock_delay => '1 h 1 us');
SELECT leader_configure('configure', lock_delay => '1 month -30 days');
SELECT leader_configure('configure', failover_limit => -1);
SELECT leader_configure('configure', failover_limit => 101);
SELECT leader_configure('configure', failover_limit => -2147483648);
SELECT leader_configure('configure', failover_window => '0.999999 s');
SELECT leader_configure('configure', failover_window => '30 days 1 us');
SELECT leader_configure('configure', failover_window => '1 month');
SELECT leader_configure('configure', owner => 'regress_configure_nobody');
SELECT leader_configure('configure', owner => '');
SELECT leader_configure('configure', owner => 'public');
SELECT leader_configure('configure', owner => 'none');
-- Nothing is changed by what is refused, whichever argument it was.
SELECT leader_configure('configure', ttl => '1 s', paused => true, failover_limit => 101);
SELECT leader_configure('configure', ttl => '1 s', owner => 'regress_configure_nobody');
SELECT leader_configure('configure refused', ttl => '1 month');
SELECT leader_configure('configure refused', owner => 'regress_configure_nobody');
SELECT paused, ttl, lock_delay, failover_limit, failover_window, takeovers FROM configured('configure');
SELECT count(*) FROM leader_status WHERE election = 'configure refused';
-- These say what may be.
\set VERBOSITY default
SELECT leader_configure('configure', ttl => '1 month');
SELECT leader_configure('configure', failover_limit => 101);
SELECT leader_configure('configure', lock_delay => '2 h');
SELECT leader_configure('configure', failover_window => '31 days');
SELECT leader_configure('configure', owner => 'regress_configure_nobody');
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT leader_configure('configure', ttl => '1 s');
ROLLBACK;
-- In a transaction
BEGIN;
SELECT leader_configure('configure', ttl => '5 s', paused => true);
SELECT leader_configure('configure rolled back');
SELECT is_leader, leader FROM leader_acquire('configure', 'a');
ROLLBACK;
SELECT paused, ttl FROM configured('configure');
SELECT count(*) FROM leader_status WHERE election = 'configure rolled back';
BEGIN;
SAVEPOINT s;
SELECT leader_configure('configure', ttl => '5 s', paused => true);
ROLLBACK TO s;
SELECT leader_configure('configure', lock_delay => '7 s');
COMMIT;
SELECT paused, ttl, lock_delay FROM configured('configure');
BEGIN;
SELECT leader_configure('configure', ttl => '5 s');
PREPARE TRANSACTION 'configure';
SELECT ttl FROM configured('configure');

--
-- ttl: of leases for which none is given
--
SELECT leader_configure('configure ttl', ttl => '2 h');
SELECT is_leader, expires_in > '1 h' AS of_two_hours, epoch AS t1 FROM leader_acquire('configure ttl', 'a') \gset
SELECT :'of_two_hours' AS of_two_hours;
SELECT ttl FROM leader_status WHERE election = 'configure ttl';
-- The TTL belongs to the term.
SELECT leader_configure('configure ttl', ttl => '3 h');
SELECT is_leader, expires_in < '2 h 1 s' AS as_before FROM leader_renew('configure ttl', :t1);
SELECT ttl FROM leader_status WHERE election = 'configure ttl';
SELECT leader_release('configure ttl', :t1);
SELECT epoch AS t2 FROM leader_acquire('configure ttl', 'a', NULL) \gset
SELECT ttl FROM leader_status WHERE election = 'configure ttl';
SELECT leader_release('configure ttl', :t2);
SELECT epoch AS t3 FROM leader_acquire('configure ttl', 'a', '4 h') \gset
SELECT ttl FROM leader_status WHERE election = 'configure ttl';
SELECT leader_release('configure ttl', :t3);
-- A session without ttl stays without.
SELECT epoch AS t4, expires_in FROM leader_acquire_session('configure ttl', 'a') \gset
SELECT ttl, expires_in FROM leader_status WHERE election = 'configure ttl';
SELECT leader_release('configure ttl', :t4);
-- Without one that is configured, the setting counts.
SET leader_election.default_ttl = '5 h';
SELECT epoch AS t5 FROM leader_acquire('configure no ttl', 'a') \gset
SELECT ttl FROM leader_status WHERE election = 'configure no ttl';
RESET leader_election.default_ttl;

--
-- paused: no new term, to nobody; the one of now goes on.
--
SELECT epoch AS p1 FROM leader_acquire('configure paused', 'a', '1 h') \gset
SELECT leader_configure('configure paused', paused => true);
SELECT is_leader, epoch = :p1 AS same FROM leader_renew('configure paused', :p1);
SELECT is_leader, epoch = :p1 AS same FROM leader_acquire('configure paused', 'a');
SELECT leader_check('configure paused', :p1), leader_fence('configure paused', :p1);
SELECT leader, state, paused FROM leader_status WHERE election = 'configure paused';
SELECT is_leader, leader FROM leader_acquire('configure paused', 'b', '1 h');
SELECT leader_release('configure paused', :p1);
-- Free but paused: nobody is named, and when to ask again is.
SELECT is_leader, epoch, leader, expires_in, step_down_after, retry_after BETWEEN '10 ms' AND '20 min' AS retry_after
FROM leader_acquire('configure paused', 'a', '1 h');
SELECT is_leader, epoch, leader, expires_in, step_down_after, retry_after BETWEEN '10 ms' AND '20 min' AS retry_after
FROM leader_acquire_session('configure paused', 'a');
SELECT is_leader FROM leader_acquire('configure paused', 'a', '1 h', wait => '100 ms');
SELECT leader, state, paused FROM leader_status WHERE election = 'configure paused';
-- A losing bid: also where nothing may be written
BEGIN READ ONLY;
SELECT is_leader FROM leader_acquire('configure paused', 'a', '1 h');
COMMIT;
-- Nor after a term that ran out, or whose session has ended, to its holder
SELECT leader_configure('configure paused', paused => false);
SELECT is_leader FROM leader_acquire('configure paused', 'a', '100 ms');
SELECT leader_configure('configure paused', paused => true);
CALL wait_expired('configure paused');
SELECT is_leader FROM leader_acquire('configure paused', 'a', '1 h');
SELECT is_leader FROM leader_acquire('configure paused', 'b', '1 h');
SELECT leader_configure('configure paused', paused => false);
SELECT epoch AS p2 FROM leader_acquire_session('configure paused', 'a') \gset
SELECT leader_configure('configure paused', paused => true);
SELECT is_leader, epoch = :p2 AS same FROM leader_acquire_session('configure paused', 'a');
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure paused', 'a');
SELECT leader_depose('configure paused') > :p2 AS deposed;
SELECT is_leader FROM leader_acquire('configure paused', 'a', '1 h');
-- Paused before there was a leader
SELECT leader_configure('configure paused new', paused => true);
SELECT is_leader FROM leader_acquire('configure paused new', 'a', '1 h');
SELECT leader_configure('configure paused new', paused => false);
SELECT is_leader FROM leader_acquire('configure paused new', 'a', '1 h');

--
-- lock_delay: after a deadline ran out nobody but the last holder, for so long
--
SELECT leader_configure('configure delay', lock_delay => '1 h');
SELECT is_leader FROM leader_acquire('configure delay', 'a', '100 ms');
CALL wait_expired('configure delay');
SELECT is_leader, epoch, leader, expires_in, retry_after >= '10 ms' AS retry_after FROM leader_acquire('configure delay', 'b', '1 h');
SELECT is_leader FROM leader_acquire_session('configure delay', 'b');
SELECT is_leader FROM leader_acquire('configure delay', 'b', '1 h', wait => '100 ms');
SELECT leader, state FROM leader_status WHERE election = 'configure delay';
-- Its name is what counts: a new term, without delay
SELECT epoch AS d1, is_leader FROM leader_acquire('configure delay', 'a', '1 h') \gset
SELECT :'is_leader' AS is_leader;
-- Not after a release
SELECT leader_release('configure delay', :d1);
SELECT is_leader, epoch AS d2 FROM leader_acquire('configure delay', 'b', '1 h') \gset
SELECT :'is_leader' AS is_leader, leader_release('configure delay', :d2);
-- Nor a session's end, with a TTL or without
SELECT is_leader FROM leader_acquire_session('configure delay', 'a');
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure delay', 'b', '1 h');
SELECT pg_advisory_unlock_all();
-- But after one whose time ran out
SELECT is_leader FROM leader_acquire_session('configure delay', 'c', '100 ms');
CALL wait_expired('configure delay');
SELECT is_leader FROM leader_acquire('configure delay', 'a', '1 h');
-- As the last holder; the kind of the new term may be another.
SELECT is_leader, epoch AS d3 FROM leader_acquire('configure delay', 'c', '100 ms') \gset
SELECT :'is_leader' AS is_leader;
CALL wait_expired('configure delay');
-- A release after the deadline ends it.
SELECT is_leader FROM leader_acquire('configure delay', 'd', '1 h');
SELECT leader_release('configure delay', :d3);
SELECT is_leader, epoch AS d4 FROM leader_acquire('configure delay', 'd', '1 h') \gset
SELECT :'is_leader' AS is_leader, leader_release('configure delay', :d4);
-- What is configured now counts, also for a term that began, or ran out, before.
SELECT is_leader FROM leader_acquire('configure delay', 'a', '100 ms');
CALL wait_expired('configure delay');
SELECT is_leader FROM leader_acquire('configure delay', 'b', '1 h');
SELECT leader_configure('configure delay', lock_delay => '0');
SELECT is_leader, epoch AS d5 FROM leader_acquire('configure delay', 'b', '1 h') \gset
SELECT :'is_leader' AS is_leader, leader_release('configure delay', :d5);
SELECT is_leader FROM leader_acquire('configure delay', 'a', '1 s');
SELECT leader_configure('configure delay', lock_delay => '1 h');
CALL wait_expired('configure delay');
SELECT is_leader FROM leader_acquire('configure delay', 'b', '1 h');
-- It is waited for, and not longer than it takes.
SELECT leader_configure('configure delay', lock_delay => '300 ms');
SELECT is_leader, epoch AS d6 FROM leader_acquire('configure delay', 'b', '1 h', wait => '10 s') \gset
SELECT :'is_leader' AS is_leader;
SELECT b.acquired_at >= a.ended_at + '300 ms'::interval AS not_before
FROM leader_term a, leader_term b
WHERE a.election = 'configure delay' AND b.election = a.election AND b.epoch = :d6
	  AND a.epoch = (SELECT max(epoch) FROM leader_term c WHERE c.election = a.election AND c.epoch < :d6);

--
-- failover_limit: the n-th takeover is granted and pauses the election.
--
SELECT leader_configure('configure failover', failover_limit => 3);
SELECT epoch AS f0 FROM leader_acquire('configure failover', 'a', '1 h') \gset
SELECT leader_release('configure failover', :f0);
SELECT paused, takeovers FROM configured('configure failover');
-- An expiry, taken over by the same holder
SELECT is_leader FROM leader_acquire('configure failover', 'a', '100 ms');
CALL wait_expired('configure failover');
SELECT is_leader FROM leader_acquire('configure failover', 'a', '1 h');
SELECT paused, takeovers FROM configured('configure failover');
-- Renewals, releases and deposes do not count.
SELECT is_leader FROM leader_acquire('configure failover', 'a', '1 h');
SELECT leader_depose('configure failover') > 0 AS deposed;
SELECT is_leader FROM leader_acquire_session('configure failover', 'b');
SELECT paused, takeovers FROM configured('configure failover');
-- A session's end; one that is rolled back does not count.
SELECT pg_advisory_unlock_all();
BEGIN;
SELECT is_leader FROM leader_acquire_session('configure failover', 'c', '1 h');
SELECT paused, takeovers FROM configured('configure failover');
ROLLBACK;
SELECT paused, takeovers FROM configured('configure failover');
SELECT is_leader FROM leader_acquire_session('configure failover', 'c', '1 h');
SELECT paused, takeovers FROM configured('configure failover');
-- The third: granted, and paused with it
SELECT pg_advisory_unlock_all();
BEGIN;
SELECT is_leader FROM leader_acquire('configure failover', 'd', '1 h');
SELECT paused FROM leader_status WHERE election = 'configure failover';
ROLLBACK;
SELECT paused FROM leader_status WHERE election = 'configure failover';
SELECT is_leader, epoch AS f1 FROM leader_acquire('configure failover', 'd', '1 h') \gset
SELECT :'is_leader' AS is_leader, leader, state, paused FROM leader_status WHERE election = 'configure failover';
SELECT is_leader FROM leader_renew('configure failover', :f1);
SELECT leader_release('configure failover', :f1);
SELECT is_leader, leader FROM leader_acquire('configure failover', 'e', '1 h');
-- Configuring something else is no resumption.
SELECT leader_configure('configure failover', failover_limit => 2);
SELECT leader_configure('configure failover', failover_limit => 0);
SELECT paused, takeovers FROM configured('configure failover');
SELECT is_leader FROM leader_acquire('configure failover', 'e', '1 h');
-- A person resumes, and what was counted is forgotten.
SELECT leader_configure('configure failover', paused => false, failover_limit => 2);
SELECT paused, takeovers FROM configured('configure failover');
SELECT is_leader FROM leader_acquire_session('configure failover', 'e');
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure failover', 'f');
SELECT paused, takeovers FROM configured('configure failover');
-- A limit that has been passed already pauses at the next takeover.
SELECT leader_configure('configure failover', failover_limit => 1);
SELECT paused FROM leader_status WHERE election = 'configure failover';
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure failover', 'g');
SELECT paused FROM leader_status WHERE election = 'configure failover';
SELECT leader_configure('configure failover', paused => false, failover_limit => 0);
-- Without a limit none is counted.
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure failover', 'h');
SELECT paused, takeovers FROM configured('configure failover');
-- What lies longer back than the window does not count.
SELECT leader_configure('configure failover', failover_limit => 2, failover_window => '1 s');
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		PERFORM pg_advisory_unlock_all();
		PERFORM leader_acquire_session('configure failover', 'i');
		COMMIT;
		PERFORM pg_sleep(1.01);
	END LOOP;
END $$;
SELECT paused, takeovers FROM configured('configure failover');
-- It is counted with history switched off, too.
SET leader_election.history = off;
SELECT leader_configure('configure failover', failover_window => '1 h', failover_limit => 1);
SELECT pg_advisory_unlock_all();
SELECT is_leader FROM leader_acquire_session('configure failover', 'j');
RESET leader_election.history;
SELECT paused FROM leader_status WHERE election = 'configure failover';
SELECT pg_advisory_unlock_all();

--
-- owner
--
CREATE ROLE regress_configure_owner;
CREATE ROLE regress_configure_other;
CREATE ROLE regress_configure_both IN ROLE regress_configure_owner, regress_configure_other;
CREATE ROLE regress_configure_noinherit NOINHERIT IN ROLE regress_configure_owner, regress_configure_other;
CREATE ROLE regress_configure_stats IN ROLE pg_read_all_stats;
CREATE ROLE "regress configure ""odd""";
SET ROLE regress_configure_owner;
SELECT leader_configure('configure owner', ttl => '1 h');
SELECT epoch AS o1 FROM leader_acquire('configure owner', 'a') \gset
SELECT owner FROM leader_status WHERE election = 'configure owner';
-- Not by who is no member, whatever else
SET ROLE regress_configure_other;
SELECT leader_configure('configure owner');
SELECT leader_configure('configure owner', paused => true);
SELECT leader_configure('configure owner', owner => 'regress_configure_other');
SET ROLE regress_configure_stats;
SELECT leader_configure('configure owner', paused => true);
SET ROLE regress_configure_noinherit;
SELECT leader_configure('configure owner', paused => true);
-- To give it away, one must belong to both sides.
SET ROLE regress_configure_owner;
SELECT leader_configure('configure owner', owner => 'regress_configure_other');
SELECT leader_configure('configure owner', owner => 'regress_configure_both');
SELECT leader_configure('configure owner', owner => 'regress_configure_nobody');
\set VERBOSITY terse
SELECT leader_configure('configure owner', owner => 'regress_configure_other');
\set VERBOSITY sqlstate
SELECT leader_configure('configure owner', owner => 'regress_configure_owner');
SELECT paused, owner FROM configured('configure owner');
RESET ROLE;
SELECT paused, owner FROM configured('configure owner');
SET ROLE regress_configure_both;
SELECT leader_configure('configure owner', owner => 'regress_configure_other');
-- The term goes on, for the new owner's members only, at once and in memory too.
SET ROLE regress_configure_other;
SELECT is_leader, epoch = :o1 AS same FROM leader_renew('configure owner', :o1);
SELECT owner, leader FROM leader_status WHERE election = 'configure owner';
SET ROLE regress_configure_owner;
SELECT is_leader FROM leader_renew('configure owner', :o1);
SELECT is_leader FROM leader_acquire('configure owner', 'a');
SELECT leader_check('configure owner', :o1);
SELECT leader_fence('configure owner', :o1);
SELECT leader_release('configure owner', :o1);
SELECT leader_depose('configure owner');
SELECT leader_drop('configure owner');
SELECT * FROM leader_renew_all('a');
SELECT owner, leader FROM leader_status WHERE election = 'configure owner';
RESET ROLE;
-- Rolled back: as it was
BEGIN;
SELECT leader_configure('configure owner', owner => 'regress_configure_owner');
SET LOCAL ROLE regress_configure_owner;
SELECT owner FROM leader_status WHERE election = 'configure owner';
ROLLBACK;
SET ROLE regress_configure_other;
SELECT is_leader FROM leader_renew('configure owner', :o1);
RESET ROLE;
-- Created for somebody else at once, and in one transaction with the term
SET ROLE regress_configure_both;
SELECT leader_configure('configure owner new', owner => 'regress_configure_other');
SELECT owner FROM leader_status WHERE election = 'configure owner new';
RESET ROLE;
BEGIN;
SELECT epoch AS o2 FROM leader_acquire('configure owner later', 'a', '1 h') \gset
SELECT leader_configure('configure owner later', owner => 'regress_configure_other');
COMMIT;
SET ROLE regress_configure_other;
SELECT is_leader FROM leader_renew('configure owner later', :o2);
SELECT leader_release('configure owner later', :o2);
SELECT is_leader FROM leader_acquire('configure owner later', 'a', '1 h');
RESET ROLE;
-- Names that need quotes
SELECT leader_configure('configure owner odd', owner => 'regress configure "odd"');
SET ROLE "regress configure ""odd""";
SELECT owner FROM leader_status WHERE election = 'configure owner odd';
SELECT is_leader FROM leader_acquire('configure owner odd', 'a', '1 h');
RESET ROLE;
-- A function that runs as somebody else: the current user counts.
CREATE FUNCTION lend_configure(name text) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
	SELECT leader_configure(name, ttl => '2 h')
$$;
ALTER FUNCTION lend_configure OWNER TO regress_configure_other;
SET ROLE regress_configure_stats;
SELECT lend_configure('configure owner');
RESET ROLE;
SELECT ttl, owner FROM configured('configure owner');
-- An owner that no longer exists: superusers only.  A renamed one no longer exists.
CREATE ROLE regress_configure_gone;
CREATE ROLE regress_configure_renamed;
SELECT leader_configure('configure owner gone', owner => 'regress_configure_gone');
SELECT leader_configure('configure owner renamed', owner => 'regress_configure_renamed');
DROP ROLE regress_configure_gone;
ALTER ROLE regress_configure_renamed RENAME TO regress_configure_gone;
SET ROLE regress_configure_gone;
-- The name counts: it is the owner of the other one now.
SELECT election, owner FROM leader_status WHERE election LIKE 'configure owner %' ORDER BY 1;
SELECT leader_configure('configure owner gone', paused => true);
SELECT leader_configure('configure owner renamed', paused => true);
RESET ROLE;
SELECT leader_configure('configure owner renamed', owner => 'regress_configure_gone', paused => true);
SELECT paused, owner FROM configured('configure owner renamed');

--
-- Creating an election by it takes the same right as the first acquire, and
-- counts as one.
--
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC;
SET ROLE regress_configure_other;
SELECT leader_configure('configure squatted');
SELECT leader_configure('configure owner', ttl => '1 h');
RESET ROLE;
GRANT USAGE ON SEQUENCE leader_election_epoch TO PUBLIC;
SET leader_election.max_elections = 0;
SET ROLE regress_configure_other;
SELECT leader_configure('configure squatted');
SELECT leader_configure('configure owner', ttl => '1 h');
RESET ROLE;
RESET leader_election.max_elections;
SELECT count(*) FROM leader_status WHERE election = 'configure squatted';

--
-- external: of an election that is free, and for good
--
SELECT epoch AS e1 FROM leader_acquire('configure external', 'a', '1 h') \gset
SELECT leader_configure('configure external', external => false);
SELECT leader_configure('configure external', external => true);
SELECT kind FROM leader_status WHERE election = 'configure external';
SELECT leader_release('configure external', :e1);
SELECT leader_configure('configure external', external => true);
SELECT leader_configure('configure external', external => true);
SELECT leader_configure('configure external', external => false);
SELECT kind, ttl FROM leader_status WHERE election = 'configure external';
SELECT is_leader FROM leader_acquire('configure external', 'a', '1 h');
SELECT leader_depose('configure external');

DROP FUNCTION lend_configure, configured;
DROP PROCEDURE wait_expired;
DROP ROLE regress_configure_both, regress_configure_noinherit, regress_configure_owner, regress_configure_other, "regress configure ""odd""", regress_configure_gone, regress_configure_stats;
