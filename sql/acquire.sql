--
-- Winning, renewing and losing.  Guards P1 (epochs only grow, each names one
-- term) and P4 (nobody else acquires while a lease runs) as one session sees
-- them, and who must learn what.
--

-- A free election: a new term.
SELECT is_leader, leader FROM leader_acquire('acquire', 'a', '1 h', metadata => '{"term": 1}');
SELECT epoch AS e1, acquired_at AS at1 FROM leader_status WHERE election = 'acquire' \gset
SELECT leader_check('acquire', :e1);

-- The same holder again: renewed, the same epoch.  TTL and metadata belong to
-- the term, so what this call says about them counts for nothing.
SELECT is_leader, epoch = :e1 AS same_epoch, leader, expires_in > '50 min' AS expires_in
FROM leader_acquire('acquire', 'a', '10 s', metadata => '{"term": "other"}');
SELECT epoch = :e1 AS same_epoch, acquired_at = :'at1' AS same_start, ttl, metadata, terms
FROM leader_status WHERE election = 'acquire';
SELECT is_leader, epoch = :e1 AS same_epoch, leader, expires_in > '50 min' AS expires_in
FROM leader_renew('acquire', :e1);
SELECT metadata FROM leader_status WHERE election = 'acquire';

-- Somebody else loses: no epoch, and nothing changes.
SELECT is_leader, epoch, leader FROM leader_acquire('acquire', 'b', '1 h', metadata => '{"term": "b"}');
SELECT leader, epoch = :e1 AS same_epoch, ttl, metadata, terms FROM leader_status WHERE election = 'acquire';

-- Nobody's epoch renews nothing.
SELECT is_leader, epoch, leader FROM leader_renew('acquire', :e1 - 1);
SELECT is_leader, epoch, leader FROM leader_renew('acquire', :e1 + 1);
SELECT leader_check('acquire', :e1 - 1), leader_check('acquire', :e1 + 1);

-- Names are compared byte by byte.
SELECT election, is_leader, leader
FROM unnest('{Acquire,"acquire "," acquire",acquir,acquire2,ACQUIRE}'::text[]) election,
     leader_acquire(election, 'other', '1 h');
SELECT election, is_leader, leader
FROM unnest('{Acquire,"acquire "," acquire",acquir,acquire2,ACQUIRE}'::text[]) election,
     leader_acquire(election, 'Other', '1 h');
SELECT holder, is_leader FROM unnest('{A,"a "," a",aa}'::text[]) holder, leader_acquire('acquire', holder, '1 h');

-- An epoch belongs to one election.
SELECT epoch AS e2 FROM leader_acquire('acquire 2', 'a', '1 h') \gset
SELECT :e2 > :e1 AS grows, leader_check('acquire', :e2), leader_check('acquire 2', :e1);
SELECT is_leader FROM leader_renew('acquire', :e2);

-- Elections of one holder are renewed together.
SELECT election, epoch IN (:e1, :e2) AS epoch, expires_in > '50 min' AS expires_in
FROM leader_renew_all('a') WHERE election LIKE 'acquire%' ORDER BY election COLLATE "C";

-- Metadata: set, replaced, cleared by the holder, kept by renewals, gone with
-- the term.
SELECT leader_set_metadata('acquire', :e1, '{"set": true}');
SELECT is_leader FROM leader_acquire('acquire', 'a');
SELECT metadata FROM leader_status WHERE election = 'acquire';
SELECT leader_set_metadata('acquire', :e1 - 1, '{"stale": true}'), leader_set_metadata('acquire', :e2, '{"stale": true}');
SELECT metadata FROM leader_status WHERE election = 'acquire';
SELECT leader_set_metadata('acquire', :e1, NULL);
SELECT metadata FROM leader_status WHERE election = 'acquire';
SELECT leader_set_metadata('acquire', :e1, NULL);
SELECT leader_set_metadata('acquire', :e1, '{"again": true}');
SELECT leader_release('acquire', :e1);
SELECT leader_set_metadata('acquire', :e1, '{"released": true}');
SELECT metadata FROM leader_status WHERE election = 'acquire';

-- The next term is new: higher epoch, its own TTL, no metadata of the old one.
SELECT epoch AS e3, epoch > :e2 AS grows, leader FROM leader_acquire('acquire', 'b', '2 h') \gset
SELECT :'grows', :'leader';
SELECT leader, epoch = :e3 AS epoch, ttl, metadata, terms FROM leader_status WHERE election = 'acquire';
SELECT is_leader, leader FROM leader_renew('acquire', :e1);
SELECT leader_check('acquire', :e1), leader_check('acquire', :e3);

-- Also for the same holder.
SELECT leader_release('acquire', :e3);
SELECT is_leader, epoch > :e3 AS grows FROM leader_acquire('acquire', 'b', '1 h');

-- READ ONLY transactions: what writes no row works.
SELECT epoch AS e4 FROM leader_status WHERE election = 'acquire' \gset
BEGIN READ ONLY;
SELECT is_leader, epoch = :e4 AS same_epoch FROM leader_acquire('acquire', 'b', '5 min', metadata => '{}');
SELECT is_leader, epoch = :e4 AS same_epoch FROM leader_renew('acquire', :e4);
SELECT epoch = :e4 AS same_epoch FROM leader_renew_all('b') WHERE election = 'acquire';
SELECT leader_check('acquire', :e4);
SELECT is_leader, leader FROM leader_acquire('acquire', 'c', '1 h');
SELECT is_leader, leader FROM leader_acquire('acquire', 'c', '1 h', '50 ms');
SELECT leader_release('acquire', :e1);
SELECT leader_fence('acquire', :e4);
SELECT state, terms FROM leader_status WHERE election = 'acquire';
COMMIT;
-- What would write one is 25006.
BEGIN READ ONLY;
SELECT is_leader FROM leader_acquire('acquire never', 'c', '1 h');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT is_leader FROM leader_acquire('acquire never', 'c', '1 h', '5 s');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT leader_release('acquire', :e4);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT leader_set_metadata('acquire', :e4, '{}');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT count(*) AS never FROM leader_status WHERE election = 'acquire never';
SELECT leader_check('acquire', :e4);

-- A losing bid that waits gives up when its time is over, and not before.
SELECT clock_timestamp() AS before \gset
SELECT is_leader, leader FROM leader_acquire('acquire', 'c', '1 h', '200 ms');
SELECT clock_timestamp() - :'before'::timestamptz >= '200 ms' AS waited;

-- A losing bid takes no transaction id, and neither does a renewal (P6).
BEGIN;
SELECT is_leader FROM leader_acquire('acquire', 'c', '1 h');
SELECT is_leader FROM leader_acquire('acquire', 'b', '1 h');
SELECT is_leader FROM leader_renew('acquire', :e4);
SELECT leader_check('acquire', :e4), leader_release('acquire', :e1);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
       (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'object' AND granted) AS locks_kept;
COMMIT;

-- Leases that run out.  Nobody acquires before (P4); whoever bids afterwards has
-- a new term, also if it is the old holder.
SELECT epoch AS t1 FROM leader_acquire('acquire expired', 'a', '1 s', metadata => '{"a": 1}') \gset
SELECT epoch AS s1 FROM leader_acquire('acquire expired same', 'a', '1 s') \gset
SELECT clock_timestamp() AS before \gset
SELECT epoch AS w1 FROM leader_acquire('acquire expired wait', 'a', '1 s') \gset
-- A waiting bid wakes up at the expiry.
SELECT is_leader, epoch > :w1 AS grows, leader FROM leader_acquire('acquire expired wait', 'b', '1 h', '10 s');
SELECT clock_timestamp() - :'before'::timestamptz >= '1 s' AS not_early;
DO $$
BEGIN
	FOR i IN 1..6000 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM leader_status WHERE election LIKE 'acquire expired%' AND leader = 'a');
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT leader, epoch = :t1 AS epoch, state, expires_in, metadata, terms
FROM leader_status WHERE election = 'acquire expired';
SELECT leader_check('acquire expired', :t1), leader_set_metadata('acquire expired', :t1, '{"late": 1}');
SELECT is_leader, epoch, leader, expires_in, step_down_after FROM leader_renew('acquire expired', :t1);
SELECT count(*) FROM leader_renew_all('a') WHERE election LIKE 'acquire expired%';
SELECT is_leader, epoch > :t1 AS grows, leader FROM leader_acquire('acquire expired', 'b', '1 h');
SELECT leader_check('acquire expired', :t1), leader_release('acquire expired', :t1);
SELECT is_leader, leader FROM leader_renew('acquire expired', :t1);
SELECT is_leader, epoch > :s1 AS grows, leader FROM leader_acquire('acquire expired same', 'a', '1 h');
SELECT leader_check('acquire expired same', :s1);
SELECT election, leader, metadata, terms FROM leader_status WHERE election LIKE 'acquire expired%' ORDER BY election COLLATE "C";

-- One statement, many terms: epochs differ, and grow in the order of grants.
SELECT count(DISTINCT epoch) AS epochs, bool_and(is_leader) AS all_won, bool_and(grows) AS grow
FROM (SELECT epoch, is_leader, epoch > lag(epoch, 1, 0::bigint) OVER (ORDER BY n) AS grows
      FROM generate_series(1, 200) n, leader_acquire('acquire many ' || n, 'h', '1 h')) t;
-- The second call in a statement sees what the first did.
SELECT holder, is_leader, leader, epoch = max(epoch) OVER () AS same_epoch
FROM unnest('{a,b,a}'::text[]) WITH ORDINALITY AS t(holder, n),
     leader_acquire('acquire twice', holder, '1 h') ORDER BY n;
