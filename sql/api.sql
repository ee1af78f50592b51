--
-- The interface as a catalog sees it: every function, view, type and setting
-- with its names, defaults, labels and comment; and the relations between the
-- columns of an answer.  Guards that clients written against the manual work.
--

-- Functions: argument names, order, defaults, results, labels.  Nothing runs
-- with its owner's rights, and everybody may execute everything: rights are
-- checked inside.
\pset format unaligned
SELECT p.proname,
       pg_get_function_arguments(p.oid) AS arguments,
       pg_get_function_result(p.oid) AS result
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE e.extname = 'leader_election' AND d.deptype = 'e'
ORDER BY p.proname COLLATE "C";
\pset format aligned

SELECT p.proname, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef,
       p.proleakproof, p.proacl IS NULL AS everybody_may_execute
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE e.extname = 'leader_election' AND d.deptype = 'e'
ORDER BY p.proname COLLATE "C";

-- The columns of each answer.
SELECT * FROM leader_acquire('api', 'h') \gdesc
SELECT * FROM leader_renew('api', 1) \gdesc
SELECT * FROM leader_renew_all('h') \gdesc
SELECT leader_release('api', 1), leader_check('api', 1), leader_set_metadata('api', 1, NULL) \gdesc
SELECT leader_fence('api', 1), leader_protect('pg_class', 'api'), leader_unprotect('pg_class') \gdesc
SELECT * FROM leader_status \gdesc

-- Arguments by name.
SELECT is_leader, leader
FROM leader_acquire(election => 'api named', holder => 'h', ttl => '1 h', wait => '0', metadata => '{}');
SELECT epoch AS named FROM leader_status WHERE election = 'api named' \gset
SELECT is_leader FROM leader_renew(election => 'api named', epoch => :named);
SELECT leader_check(election => 'api named', epoch => :named);
SELECT leader_set_metadata(election => 'api named', epoch => :named, metadata => '{"a": 1}');
SELECT leader_fence(election => 'api named', epoch => :named);
SELECT election, epoch = :named AS same_epoch FROM leader_renew_all(holder => 'h')
WHERE election = 'api named';
CREATE TABLE api_table (id int, fence_epoch bigint);
SELECT leader_protect(relation => 'api_table', election => 'api named',
                      epoch_column => 'fence_epoch', replica => false);
SELECT leader_unprotect(relation => 'api_table');
DROP TABLE api_table;
SELECT leader_release(election => 'api named', epoch => :named);

-- Every object of the extension says what it is; but for the types that come with
-- tables, views and other types, which some majors list as well.
SELECT pg_describe_object(d.classid, d.objid, 0) AS without_comment
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'leader_election' AND d.deptype = 'e'
  AND obj_description(d.objid, d.classid::regclass::name) IS NULL
  AND NOT EXISTS (SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
                  WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid
                    AND (t.typelem <> 0 OR c.relkind <> 'c'));
SELECT obj_description(oid, 'pg_extension') <> '' AS has_comment
FROM pg_extension WHERE extname = 'leader_election';

-- What a dump must carry: every table and sequence of the extension.
SELECT c.relname, c.relkind, c.oid = ANY (e.extconfig) AS dumped
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
WHERE e.extname = 'leader_election' AND d.deptype = 'e' AND c.relkind IN ('r', 'S')
ORDER BY c.relname COLLATE "C";

-- Settings.  The room for leases can be set at start only where the library is
-- preloaded; this file may run on either kind of server.
SELECT name, vartype, unit, boot_val, min_val, max_val,
       CASE WHEN name = 'leader_election.max_leases' AND context IN ('sighup', 'postmaster')
            THEN 'sighup or postmaster' ELSE context END AS context
FROM pg_settings WHERE name LIKE 'leader\_election.%'
ORDER BY name COLLATE "C";
SELECT count(*) AS without_description
FROM pg_settings WHERE name LIKE 'leader\_election.%' AND coalesce(short_desc, '') = '';

-- A misspelt setting of ours is refused.
SET leader_election.fense = 'api=1';

-- default_ttl: 15 seconds, from 100 ms to 24 hours.
SHOW leader_election.default_ttl;
SELECT is_leader FROM leader_acquire('api default', 'h');
SELECT ttl FROM leader_status WHERE election = 'api default';
SET leader_election.default_ttl = '1h';
SELECT is_leader FROM leader_acquire('api default 2', 'h');
SELECT is_leader FROM leader_acquire('api default 3', 'h', NULL, NULL, NULL);
SELECT is_leader FROM leader_acquire('api default 4', 'h', '20 min');
SELECT election, ttl FROM leader_status WHERE election LIKE 'api default %' ORDER BY election COLLATE "C";
\set VERBOSITY sqlstate
SET leader_election.default_ttl = '99ms';
SET leader_election.default_ttl = '1441min';
\set VERBOSITY default
SET leader_election.default_ttl = '100ms';
SET leader_election.default_ttl = '24h';
SHOW leader_election.default_ttl;
RESET leader_election.default_ttl;

-- The leader's answer.  TTL 1 hour: a third is 20 minutes.
SELECT is_leader, epoch > 0 AS has_epoch, epoch < 2::numeric ^ 53 AS below_2_53, leader,
       expires_in <= '1 h' AND expires_in > '50 min' AS expires_in,
       step_down_after = expires_in - interval '20 min' AS step_down_after,
       retry_after <= '20 min' AND retry_after > '15 min' AS retry_after,
       abs(extract(epoch FROM retry_after - step_down_after / 2)) < 0.00001 AS half
FROM leader_acquire('api shape', 'h', '1 h');

-- A renewal gives the full TTL again, in the same form.
SELECT is_leader, epoch = s.e AS same_epoch, leader,
       expires_in <= '1 h' AND expires_in > '50 min' AS expires_in,
       step_down_after = expires_in - interval '20 min' AS step_down_after,
       abs(extract(epoch FROM retry_after - step_down_after / 2)) < 0.00001 AS half
FROM (SELECT epoch AS e FROM leader_status WHERE election = 'api shape') s,
     leader_renew('api shape', s.e);

-- Whoever loses gets no epoch and no time to act, but is told who leads, for
-- how long, and when to come again: at most a third of the TTL later, spread.
SELECT is_leader, epoch, leader, expires_in > '50 min' AS expires_in, step_down_after,
       retry_after >= '3 min' AND retry_after <= '20 min' AS retry_after
FROM leader_acquire('api shape', 'other', '1 h');
SELECT bool_and(retry_after BETWEEN '3 min' AND '20 min') AS within,
       count(DISTINCT retry_after) > 10 AS spread
FROM generate_series(1, 50) n, leader_acquire('api shape', 'other ' || n);
SELECT is_leader, epoch, leader, expires_in > '50 min' AS expires_in, step_down_after,
       retry_after >= '3 min' AND retry_after <= '20 min' AS retry_after
FROM leader_renew('api shape', 1);

-- What is told follows the current term, not what the loser would have liked.
SELECT bool_and(retry_after BETWEEN '3 min' AND '20 min') AS within
FROM generate_series(1, 50) n, leader_acquire('api shape', 'other ' || n, '1 s');

-- With the shortest TTL nobody is asked to come again sooner than 10 ms.
SET leader_election.default_ttl = '100ms';
SELECT bool_and(retry_after BETWEEN '10 ms' AND '33334 us') AS retry_after
FROM generate_series(1, 50) n, leader_renew('api nobody', 1);
RESET leader_election.default_ttl;

-- Towards the end of a lease of 1 second a follower is told to come when it is
-- over, a little spread, but never sooner than TTL/20 from now nor later than
-- TTL/3.  It asks until it has won.
SELECT is_leader FROM leader_acquire('api end', 'h', '1 s');
DO $$
DECLARE
	a record;
	bad text;
BEGIN
	FOR i IN 1..3000 LOOP
		SELECT * INTO a FROM leader_acquire('api end', 'follower', '1 s');
		EXIT WHEN a.is_leader OR bad IS NOT NULL;
		IF a.expires_in < '0' OR a.expires_in > '1 s' OR a.retry_after < '50 ms' OR
			a.retry_after > '333334 us' OR
			(a.expires_in < '266 ms' AND a.retry_after < a.expires_in)
		THEN
			bad := a::text;
		END IF;
		PERFORM pg_sleep(0.02);
	END LOOP;
	RAISE NOTICE 'won as %, bad answers: %', a.leader, coalesce(bad, 'none');
END $$;

-- A free election that nobody holds: the view shows that, and nobody is named.
SELECT epoch AS shape FROM leader_status WHERE election = 'api shape' \gset
SELECT election, leader, epoch = :shape AS epoch, kind, state, paused, ttl,
       expires_in > '50 min' AS expires_in, acquired_at <= clock_timestamp() AS acquired_at,
       metadata, owner = current_user AS owner, terms, pid
FROM leader_status WHERE election = 'api shape' \gx
SELECT leader_release('api shape', :shape);
SELECT election, leader, kind, state, paused, ttl, expires_in, metadata,
       owner = current_user AS owner, terms, pid
FROM leader_status WHERE election = 'api shape' \gx
SELECT is_leader, epoch, leader, expires_in, step_down_after,
       retry_after >= '10 ms' AND retry_after <= '20 min' AS retry_after
FROM leader_renew('api shape', :shape);

-- Nobody has ever bid for this one.
SELECT is_leader, epoch, leader, expires_in, step_down_after, retry_after >= '10 ms' AS retry_after
FROM leader_renew('api nobody', 1);
SELECT leader_check('api nobody', 1), leader_release('api nobody', 1),
       leader_set_metadata('api nobody', 1, '{}');
SELECT * FROM leader_renew_all('api nobody');
SELECT count(*) FROM leader_status WHERE election = 'api nobody';
