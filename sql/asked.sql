--
-- leader_status and leader_stats asked for one election, in all the ways in which
-- the name may come.  Guards that whoever asks for one by its name, which makes
-- its row only, is answered as by the whole list, and that whoever does not is
-- not taken for one who does.
--
SET client_min_messages = warning;
DO $$
BEGIN
	PERFORM leader_acquire(name, 'leader of ' || name, '1 h')
	FROM unnest('{asked, Asked, "asked ", other, it''s}'::text[]) name;
END $$;
RESET client_min_messages;

-- The other elections in the database do not matter here.
CREATE TEMP VIEW ours AS SELECT election, leader, state FROM leader_status
	WHERE election IN ('asked', 'Asked', 'asked ', 'other', 'it''s');
SELECT * FROM ours ORDER BY election COLLATE "C";

-- A constant
SELECT election, leader FROM leader_status WHERE election = 'asked';
SELECT election, leader FROM leader_status WHERE 'asked' = election;
SELECT election, leader FROM leader_status WHERE election = 'asked '::varchar;
SELECT election, leader FROM leader_status WHERE election = 'asked'::name;
SELECT election, leader FROM leader_status WHERE election = 'it''s' AND leader LIKE '%it%';
SELECT election, leader FROM leader_status WHERE election = 'asked' AND election = 'other';
SELECT election, leader FROM leader_status WHERE election = 'unknown';
SELECT election, leader FROM leader_status WHERE election = repeat('x', 1000);
SELECT election, leader FROM leader_status WHERE election = '';
SELECT election, leader FROM leader_status WHERE election = NULL;
SELECT election, leader FROM leader_status WHERE leader = 'leader of asked';
SELECT election, leader FROM leader_status WHERE lower(election) = 'asked' ORDER BY election COLLATE "C";
SELECT election, leader FROM leader_status WHERE election <> 'asked' AND leader LIKE 'leader of %sked%' ORDER BY election COLLATE "C";
SELECT election, leader FROM leader_status WHERE election = 'asked' OR leader = 'leader of other' ORDER BY election COLLATE "C";
SELECT election, leader FROM ours WHERE NOT election = 'asked' ORDER BY election COLLATE "C";

-- A parameter, of a plan for it and of one for any
SET plan_cache_mode = force_custom_plan;
PREPARE by_name(text) AS SELECT election, leader FROM leader_status WHERE election = $1;
EXECUTE by_name('asked');
SET plan_cache_mode = force_generic_plan;
EXECUTE by_name('asked');
EXECUTE by_name('other');
EXECUTE by_name(NULL);
EXECUTE by_name('unknown');
PREPARE by_varchar(varchar) AS SELECT election, leader FROM leader_status WHERE election = $1;
EXECUTE by_varchar('asked ');
CREATE FUNCTION pg_temp.leader_of(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT leader FROM leader_status WHERE election = name);
END $$;
SELECT pg_temp.leader_of('asked'), pg_temp.leader_of('other'), pg_temp.leader_of('unknown'), pg_temp.leader_of(NULL);
RESET plan_cache_mode;
SELECT pg_temp.leader_of('asked'), pg_temp.leader_of('other'), pg_temp.leader_of('unknown'), pg_temp.leader_of(NULL);

-- In a larger query
SELECT name, (SELECT leader FROM leader_status WHERE election = name)
	FROM (VALUES ('asked'), ('other'), ('unknown')) v (name);
SELECT v.name, s.leader FROM (VALUES ('asked'), ('other')) v (name)
	LEFT JOIN leader_status s ON s.election = v.name AND s.election = 'asked' ORDER BY 1;
SELECT s.election, o.election FROM leader_status s, leader_status o WHERE s.election = 'asked' AND o.election = 'other';
SELECT s.election, o.election FROM leader_status s, ours o WHERE s.election = 'asked' ORDER BY o.election COLLATE "C";
SELECT election FROM leader_status WHERE election = 'asked' UNION ALL
	SELECT election FROM leader_status WHERE election = 'other' ORDER BY 1;
WITH one AS MATERIALIZED (SELECT election, leader FROM leader_status WHERE election = 'asked') SELECT * FROM one;
SELECT (SELECT leader FROM leader_status WHERE election = 'asked'), n FROM generate_series(1, 2) n;
SELECT election, n FROM leader_status, generate_series(1, 2) n WHERE election = 'asked' ORDER BY n;
SELECT count(*) > 1 AS all_of_them FROM (SELECT (leader_election_status()).election FROM leader_status WHERE election = 'asked') s;
SELECT election, position > 1 AS among_others FROM leader_election_status() WITH ORDINALITY
	AS s (election, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, position) WHERE election = 'other';
SELECT election FROM leader_status WHERE election = 'asked' AND random() >= 0 LIMIT 1;
SELECT election, end_reason FROM leader_term WHERE election = 'asked';

-- Statistics
SELECT election, terms FROM leader_stats WHERE election = 'asked';
SELECT count(*) FROM leader_stats WHERE election = 'unknown';
SELECT election, terms FROM leader_stats WHERE election IN ('asked', 'other') ORDER BY election COLLATE "C";
SELECT s.election, t.terms FROM leader_status s JOIN leader_stats t USING (election) WHERE election = 'asked';

-- What this transaction has done is seen, and what it has undone is not.
BEGIN;
SELECT is_leader FROM leader_acquire('asked anew', 'leader', '1 h');
SELECT election, leader FROM leader_status WHERE election = 'asked anew';
ROLLBACK;
SELECT election, leader FROM leader_status WHERE election = 'asked anew';

SELECT count(*) FROM ours o, leader_status s, leader_release(s.election, s.epoch) WHERE o.election = s.election;
SELECT count(*) FROM (SELECT leader_drop(election) FROM ours) AS dropped;
