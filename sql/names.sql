--
-- Bad input: names, epochs, TTLs, waits and metadata.  Guards that each gets a
-- clear error with the designed SQLSTATE, at every function alike, and that
-- nothing is half done.
--
CREATE FUNCTION outcome(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
	answer text;
BEGIN
	EXECUTE command INTO answer;
	RETURN 'answer ' || coalesce(answer, 'null');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN state || ' ' || message || coalesce(' / ' || nullif(detail, ''), '') ||
		coalesce(' / ' || nullif(hint, ''), '');
END $$;

-- An argument that must not be NULL says so; never a silent NULL answer.
SELECT call, outcome('SELECT ' || call)
FROM unnest('{
	"is_leader FROM leader_acquire(NULL, ''h'')",
	"is_leader FROM leader_acquire(''names'', NULL)",
	"is_leader FROM leader_renew(NULL, 1)",
	"is_leader FROM leader_renew(''names'', NULL)",
	"count(*) FROM leader_renew_all(NULL)",
	"leader_release(NULL, 1)",
	"leader_release(''names'', NULL)",
	"leader_check(NULL, 1)",
	"leader_check(''names'', NULL)",
	"leader_set_metadata(NULL, 1, NULL)",
	"leader_set_metadata(''names'', NULL, NULL)",
	"leader_fence(NULL, 1)",
	"leader_fence(''names'', NULL)",
	"leader_protect(NULL, ''names'')",
	"leader_unprotect(NULL)"
}'::text[]) WITH ORDINALITY AS c(call, n) ORDER BY n;
CREATE TABLE names_table (id int);
SELECT outcome($$SELECT leader_protect('names_table', NULL)$$);

-- NULL for an argument with a default means the default.
SELECT outcome($$SELECT is_leader FROM leader_acquire('names null', 'h', NULL, NULL, NULL)$$);
SELECT outcome($$SELECT leader_protect('names_table', 'names null', NULL, NULL)$$);
SELECT outcome($$SELECT leader_unprotect('names_table')$$);

-- Names.  Each bad one at every function that takes one.
CREATE TABLE bad_names (n serial, what text, name text);
INSERT INTO bad_names (what, name) VALUES
	('empty', ''),
	('256 bytes', repeat('x', 256)),
	('256 bytes in 128 characters', repeat(U&'\00e9', 128)),
	('a megabyte', repeat('x', 1048576)),
	('tab', E'a\tb'),
	('newline', E'a\n'),
	('carriage return', E'\ra'),
	('U+0001', E'a\x01'),
	('U+001F', E'\x1fa'),
	('U+007F', E'a\x7f'),
	('U+0080', U&'a\0080'),
	('U+0085', U&'\0085a'),
	('U+009F', U&'a\009Fb');

SELECT what, outcome(format('SELECT is_leader FROM leader_acquire(%L, ''h'')', name)) AS "as an election's"
FROM bad_names ORDER BY n;
SELECT what, outcome(format('SELECT is_leader FROM leader_acquire(''names'', %L)', name)) AS "as a holder's"
FROM bad_names ORDER BY n;

SELECT call, count(*) AS names, string_agg(DISTINCT left(outcome(format('SELECT ' || call, name)), 5), ' ') AS states
FROM unnest('{
	"is_leader FROM leader_acquire(%L, ''h'')",
	"is_leader FROM leader_acquire(''names'', %L)",
	"is_leader FROM leader_renew(%L, 1)",
	"count(*) FROM leader_renew_all(%L)",
	"leader_release(%L, 1)",
	"leader_check(%L, 1)",
	"leader_set_metadata(%L, 1, NULL)",
	"leader_fence(%L, 1)",
	"leader_protect(''names_table'', %L)"
}'::text[]) WITH ORDINALITY AS c(call, n), bad_names
GROUP BY c.n, call ORDER BY c.n;

-- The longest names, and names that only look odd.
CREATE TABLE good_names (n serial, what text, name text);
INSERT INTO good_names (what, name) VALUES
	('1 byte', 'x'),
	('a blank', ' '),
	('255 bytes', repeat('x', 255)),
	('255 bytes in 128 characters', repeat(U&'\00e9', 127) || 'x'),
	('U+00A0', U&'a\00A0b'),
	('U+00C2 twice', U&'\00C2\00C2'),
	('composed', U&'\00e9lection'),
	('decomposed', U&'e\0301lection'),
	('four bytes', U&'\+01F5F3'),
	('quotes', 'it''s "quoted"'),
	('separators', 'a=1, b\c/d{e}%s');
DO $$
DECLARE
	good record;
	a record;
	e bigint;
	result text;
BEGIN
	FOR good IN SELECT * FROM good_names ORDER BY n LOOP
		SELECT * INTO a FROM leader_acquire(good.name, good.name, '1 h');
		e := a.epoch;
		result := format('%s, is leader %s', good.what, a.leader = good.name);
		SELECT * INTO a FROM leader_acquire(good.name, 'other', '1 h');
		result := result || format(', others are told %s', NOT a.is_leader AND a.leader = good.name);
		SELECT * INTO a FROM leader_renew(good.name, e);
		PERFORM leader_fence(good.name, e);
		RAISE NOTICE '%, renewed %, current %, listed %', result, a.is_leader, leader_check(good.name, e),
			(SELECT count(*) FROM leader_status WHERE election = good.name AND leader = good.name AND epoch = e);
	END LOOP;
END $$;
-- Compared byte by byte: composed and decomposed are two elections.
SELECT count(*) AS elections, count(DISTINCT epoch) AS epochs FROM leader_status
WHERE election IN (SELECT name FROM good_names);
-- Where a table is protected, braces are for columns of the row.
SELECT outcome($$SELECT leader_protect('names_table', 'names {')$$);
SELECT outcome($$SELECT leader_protect('names_table', 'names {nowhere}')$$);
SELECT outcome($$SELECT leader_protect('names_table', 'names {id}')$$);
SELECT outcome($$SELECT leader_unprotect('names_table')$$);

-- Epochs that are no epochs are not current, and no error of their own.
SELECT e, is_leader, leader_check('x', e), leader_release('x', e), leader_set_metadata('x', e, '{}')
FROM unnest('{0,-1,-9223372036854775808,9007199254740992,9223372036854775807}'::bigint[]) e,
     leader_renew('x', e);
SELECT e, left(outcome(format('SELECT leader_fence(''x'', %L)', e)), 5)
FROM unnest('{0,-1,-9223372036854775808,9007199254740992,9223372036854775807}'::bigint[]) e;

-- TTL: 100 ms to 24 h, no months.  The bids lose if they are not refused, as a
-- term that short could end its own transaction.
SELECT outcome($$SELECT is_leader FROM leader_acquire('names ttl', 'h', '24 h')$$);
SELECT ttl, outcome(format('SELECT is_leader FROM leader_acquire(''names ttl'', ''other'', %L)', ttl))
FROM unnest('{
	0,
	-1 s,
	-24 h,
	99 ms,
	99.999 ms,
	100 ms,
	24 h,
	1 day,
	-1 day +25 hours,
	24:00:00.000001,
	25 h,
	2 days,
	1 day 1 us,
	1 mon,
	-1 mon,
	1 mon -30 days,
	1 year,
	2147483647 days,
	-2147483648 days,
	106751991 days 10 hours,
	-106751991 days -10 hours,
	2562047788 hours,
	-2562047788 hours,
	2147483647 days 2562047788 hours
}'::text[]) WITH ORDINALITY AS t(ttl, n) ORDER BY n;

-- Infinite intervals: before 17 no such value can be written.
SELECT ttl, left(outcome(format('SELECT is_leader FROM leader_acquire(''names infinite'', ''h'', %L)', ttl)), 5)
	= CASE WHEN current_setting('server_version_num')::int < 170000 THEN '22007' ELSE '22023' END AS refused
FROM unnest('{infinity,-infinity}'::text[]) ttl;
SELECT wait, left(outcome(format('SELECT is_leader FROM leader_acquire(''names infinite'', ''h'', ''1 s'', %L)', wait)), 5)
	= CASE WHEN current_setting('server_version_num')::int < 170000 THEN '22007' ELSE '22023' END AS refused
FROM unnest('{infinity,-infinity}'::text[]) wait;

-- Wait: 0 to 10 s, no months.  The bids win at once, so nothing waits.
SELECT wait, outcome(format('SELECT is_leader FROM leader_acquire(%L, ''h'', ''1 h'', %L)', 'names wait ' || n, wait))
FROM unnest('{
	0,
	1 us,
	10 s,
	-1 day +24:00:10,
	-1 us,
	-1 s,
	10.000001 s,
	11 s,
	1 day,
	1 mon,
	1 mon -30 days,
	2147483647 days,
	-2147483648 days
}'::text[]) WITH ORDINALITY AS t(wait, n) ORDER BY n;

-- Metadata: at most 8 kB as text.
SELECT bytes, outcome(format('SELECT is_leader FROM leader_acquire(%L, ''h'', ''1 h'', metadata => to_jsonb(repeat(''x'', %s)))',
                             'names metadata ' || bytes, bytes - 2))
FROM unnest('{8191,8192,8193,1048576}'::int[]) bytes;
SELECT bytes, outcome(format('SELECT leader_set_metadata(''names metadata 8191'', %s, to_jsonb(repeat(''x'', %s)))',
                             epoch, bytes - 2))
FROM unnest('{8191,8192,8193,1048576}'::int[]) bytes, leader_status
WHERE election = 'names metadata 8191';
SELECT election, length(metadata::text) FROM leader_status WHERE election LIKE 'names metadata%' ORDER BY election COLLATE "C";
-- What is null in JSON is a value like any other.
SELECT outcome($$SELECT is_leader FROM leader_acquire('names metadata null', 'h', '1 h', metadata => 'null')$$);
SELECT metadata, metadata IS NULL AS none FROM leader_status WHERE election = 'names metadata null';

-- Nothing was half done: no election was created by a call that failed.
SELECT election, leader, terms FROM leader_status
WHERE election IN ('names', 'names infinite', 'names metadata 8193', 'names metadata 1048576')
   OR election IN (SELECT name FROM bad_names);
SELECT leader, ttl, terms FROM leader_status WHERE election = 'names ttl';
SELECT count(*) FROM leader_status WHERE election LIKE 'names wait %';

DROP TABLE names_table, bad_names, good_names;
DROP FUNCTION outcome;
