--
-- Election templates: each row names the election that protects it.  Guards P2
-- where one table belongs to many leaders: no row is written by the token of
-- another row's election, the name is the same in every session, and what cannot
-- be named so is refused.
--
SET client_min_messages = warning;
\set VERBOSITY sqlstate

-- The SQLSTATE of a statement, or how many rows it touched; it is undone.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	touched bigint;
BEGIN
	EXECUTE statement;
	GET DIAGNOSTICS touched = ROW_COUNT;
	RAISE EXCEPTION USING ERRCODE = 'UNDO0';
EXCEPTION
	WHEN SQLSTATE 'UNDO0' THEN RETURN 'passes, rows: ' || touched;
	WHEN OTHERS THEN RETURN SQLSTATE;
END $$;
-- The election that a statement is refused for, or its SQLSTATE
CREATE FUNCTION election_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'passes';
EXCEPTION
	WHEN SQLSTATE 'LE002' THEN RETURN substring(SQLERRM FROM 'election "(.*)"$');
	WHEN OTHERS THEN RETURN SQLSTATE;
END $$;
CREATE TABLE terms (election text, epoch bigint);
INSERT INTO terms SELECT election, epoch
FROM unnest('{shard/1,shard/2,shard/3}'::text[]) election, leader_acquire(election, 'a', '1 h');
SELECT max(epoch) FILTER (WHERE election = 'shard/1') AS one, max(epoch) FILTER (WHERE election = 'shard/2') AS two,
	max(epoch) FILTER (WHERE election = 'shard/3') AS three FROM terms \gset

-- Each row by its own token: whoever leads one shard writes no other.
CREATE TABLE shards (shard int, v int);
INSERT INTO shards VALUES (1, 1), (2, 2), (2, 22), (3, 3);
SELECT leader_protect('shards', 'shard/{shard}');
SELECT relation, election, epoch_column, level, in_force, problem FROM leader_protected;
CREATE TABLE ways (n serial, statement text);
INSERT INTO ways (statement) VALUES
	('INSERT INTO shards VALUES (1, 9)'),
	('INSERT INTO shards VALUES (2, 9)'),
	('INSERT INTO shards VALUES (1, 9), (1, 99), (2, 9)'),
	('INSERT INTO shards VALUES (1, 9), (3, 99), (1, 9)'),
	('INSERT INTO shards VALUES (4, 9)'),
	('INSERT INTO shards VALUES (NULL, 9)'),
	('UPDATE shards SET v = 9'),
	('UPDATE shards SET v = 9 WHERE shard = 1'),
	('UPDATE shards SET v = 9 WHERE shard = 2'),
	('UPDATE shards SET shard = shard'),
	('UPDATE shards SET shard = 2 WHERE shard = 1'),
	('UPDATE shards SET shard = 1 WHERE shard = 2'),
	('UPDATE shards SET shard = 1 WHERE shard = 3'),
	('UPDATE shards SET shard = 3 - shard WHERE shard < 3'),
	('UPDATE shards SET shard = 4 WHERE shard = 1'),
	('UPDATE shards SET shard = NULL WHERE shard = 1'),
	('DELETE FROM shards'),
	('DELETE FROM shards WHERE shard = 1'),
	('DELETE FROM shards WHERE shard = 2'),
	('DELETE FROM shards WHERE shard = 9'),
	('MERGE INTO shards t USING (VALUES (1), (2)) s (i) ON t.shard = s.i WHEN MATCHED AND s.i = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 9'),
	('MERGE INTO shards t USING (VALUES (1), (5)) s (i) ON t.shard = s.i WHEN NOT MATCHED THEN INSERT VALUES (2, 9)'),
	('TRUNCATE shards'),
	('WITH w AS (DELETE FROM shards WHERE shard = 2 RETURNING *) INSERT INTO shards SELECT 1, v FROM w');
SELECT set_config('leader_election.fence', 'shard/1=' || :one, false) <> '' AS first \gset
CREATE TABLE answers AS SELECT n, try(statement) AS first FROM ways;
SELECT set_config('leader_election.fence', 'shard/1=' || :one || ',shard/2=' || :two, false) <> '' AS both \gset
ALTER TABLE answers ADD both_current text, ADD second_stale text, ADD none text;
UPDATE answers a SET both_current = try(statement) FROM ways w WHERE w.n = a.n;
SELECT set_config('leader_election.fence', 'shard/1=' || :one || ',shard/2=' || :one, false) <> '' AS stale \gset
UPDATE answers a SET second_stale = try(statement) FROM ways w WHERE w.n = a.n;
RESET leader_election.fence;
UPDATE answers a SET none = try(statement) FROM ways w WHERE w.n = a.n;
SELECT statement, first, both_current, second_stale, none FROM ways JOIN answers USING (n) ORDER BY n;
COPY shards FROM stdin;
1	9
\.
SELECT * FROM shards ORDER BY v;

-- What was found for one row does not pass another: rows of two shards take turns,
-- with equal and with different epochs.
BEGIN;
SELECT leader_fence('shard/1', :one);
SELECT try('INSERT INTO shards SELECT 1, i FROM generate_series(1, 5) i') AS one,
	try('INSERT INTO shards SELECT 1 + i % 2, i FROM generate_series(0, 5) i') AS turns,
	try('INSERT INTO shards SELECT CASE WHEN i = 100 THEN 2 ELSE 1 END, i FROM generate_series(1, 100) i') AS last,
	try('UPDATE shards SET v = 0 WHERE shard <> 3') AS "update",
	try('DELETE FROM shards WHERE shard <> 3') AS delete;
SELECT leader_fence('shard/2', :two);
SELECT try('INSERT INTO shards SELECT 1, i FROM generate_series(1, 5) i') AS one,
	try('INSERT INTO shards SELECT 1 + i % 2, i FROM generate_series(0, 5) i') AS turns,
	try('INSERT INTO shards SELECT 1 + i % 3, i FROM generate_series(0, 5) i') AS thirds,
	try('UPDATE shards SET v = 0 WHERE shard <> 3') AS "update",
	try('DELETE FROM shards WHERE shard <> 3') AS delete;
-- A token that is rolled back is none for any row.
SAVEPOINT s;
SELECT leader_fence('shard/3', :three);
INSERT INTO shards VALUES (3, 33);
ROLLBACK TO s;
SAVEPOINT s;
INSERT INTO shards VALUES (3, 33);
ROLLBACK TO s;
INSERT INTO shards VALUES (1, 11);
UPDATE shards SET shard = 2 WHERE v = 11;
COMMIT;
SELECT * FROM shards ORDER BY v;

-- A term that ends: the others go on.
BEGIN;
SELECT leader_fence('shard/1', :one), leader_fence('shard/2', :two);
INSERT INTO shards VALUES (1, 111), (2, 222);
SELECT leader_release('shard/2', :two);
SELECT try('INSERT INTO shards VALUES (1, 112)') AS first, try('INSERT INTO shards VALUES (2, 223)') AS second,
	try('UPDATE shards SET shard = 1 WHERE shard = 2') AS away, try('UPDATE shards SET shard = 2 WHERE shard = 1') AS there;
ROLLBACK;

-- TRUNCATE is refused for whom leads all, too; for maintenance it is let pass.
SELECT set_config('leader_election.fence', format('shard/1=%s,shard/2=%s,shard/3=%s', :one, :two, :three), false) <> '' AS all \gset
SELECT try('TRUNCATE shards') AS truncate, try('DELETE FROM shards') AS delete;
RESET leader_election.fence;
SET leader_election.enforce = off;
SELECT try('TRUNCATE shards') AS truncate, try('INSERT INTO shards VALUES (NULL, 1)') AS none;
RESET leader_election.enforce;
\set VERBOSITY default
TRUNCATE shards;
INSERT INTO shards VALUES (NULL, 1);
\set VERBOSITY sqlstate
SELECT leader_unprotect('shards');

-- With an epoch column: what the row brings is judged by its own election, and so
-- is the one that it leaves.
ALTER TABLE shards ADD e bigint;
UPDATE shards SET e = CASE shard WHEN 1 THEN :one WHEN 2 THEN :two END;
SELECT leader_protect('shards', 'shard/{shard}', 'e');
CREATE TABLE ways_epoch (n serial, statement text);
INSERT INTO ways_epoch (statement) VALUES
	('INSERT INTO shards VALUES (1, 9, ONE)'),
	('INSERT INTO shards VALUES (2, 9, TWO)'),
	('INSERT INTO shards VALUES (1, 9, TWO)'),
	('INSERT INTO shards VALUES (2, 9, ONE)'),
	('INSERT INTO shards VALUES (1, 9, ONE), (2, 9, TWO), (1, 9, ONE)'),
	('INSERT INTO shards VALUES (1, 9, ONE), (2, 9, ONE)'),
	('INSERT INTO shards VALUES (1, 9)'),
	('INSERT INTO shards VALUES (2, 9)'),
	('UPDATE shards SET v = 9 WHERE shard = 1'),
	('UPDATE shards SET v = 9, e = TWO WHERE shard = 2'),
	('UPDATE shards SET shard = 2, e = TWO WHERE shard = 1'),
	('UPDATE shards SET shard = 2, e = ONE WHERE shard = 1'),
	('UPDATE shards SET shard = 2, e = NULL WHERE shard = 1'),
	('UPDATE shards SET shard = 2 WHERE shard = 1'),
	('UPDATE shards SET shard = 1, e = ONE WHERE shard = 2'),
	('UPDATE shards SET shard = 1 WHERE shard = 2'),
	('DELETE FROM shards WHERE shard = 1'),
	('DELETE FROM shards WHERE shard = 2'),
	('TRUNCATE shards');
CREATE FUNCTION try_epoch(statement text, one bigint, two bigint) RETURNS text LANGUAGE sql AS $$
	SELECT try(replace(replace(statement, 'ONE', one::text), 'TWO', two::text))
$$;
DROP TABLE answers;
CREATE TABLE answers AS SELECT n, try_epoch(statement, :one, :two) AS none FROM ways_epoch;
ALTER TABLE answers ADD first text, ADD second text, ADD both_current text;
SELECT set_config('leader_election.fence', 'shard/1=' || :one, false) <> '' AS first \gset
UPDATE answers a SET first = try_epoch(statement, :one, :two) FROM ways_epoch w WHERE w.n = a.n;
SELECT set_config('leader_election.fence', 'shard/2=' || :two, false) <> '' AS second \gset
UPDATE answers a SET second = try_epoch(statement, :one, :two) FROM ways_epoch w WHERE w.n = a.n;
SELECT set_config('leader_election.fence', 'shard/1=' || :one || ',shard/2=' || :two, false) <> '' AS both \gset
UPDATE answers a SET both_current = try_epoch(statement, :one, :two) FROM ways_epoch w WHERE w.n = a.n;
SELECT statement, none, first, second, both_current FROM ways_epoch JOIN answers USING (n) ORDER BY n;
-- The stamp is that of the election where the row goes.
UPDATE shards SET shard = 3 - shard WHERE shard IN (1, 2);
SELECT shard, count(*), bool_and(e = CASE shard WHEN 1 THEN :one ELSE :two END) AS its_own FROM shards WHERE shard < 3 GROUP BY 1 ORDER BY 1;
RESET leader_election.fence;
SELECT leader_unprotect('shards');

-- Grammar: columns as SQL writes them, literal braces doubled.
CREATE TABLE odd (id int, "Id" int, "a b" int, "say ""x""" int, "x}y{" int, "tABLE" int, sch$1 int, ü int, dropped int);
ALTER TABLE odd DROP dropped;
CREATE FUNCTION name_of(template text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM leader_protect('odd', template);
	answer := election_of('INSERT INTO odd VALUES (1, 2, 3, 4, 5, 6, 7, 8)');
	PERFORM leader_unprotect('odd');
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT t AS template, name_of(t) FROM unnest(ARRAY[
	'{id}', '{ID}', '{iD}', '{"id"}', '{"Id"}', '{"ID"}', 'x{id}y{id}z', '{id}{"Id"}', '{"a b"}', '{"say ""x"""}', '{"x}y{"}',
	'{"tABLE"}', '{sch$1}', '{ü}', '{"ü"}', '{{id}}', '{{{id}}}', '{{', '}}', '{{}}', 'a{{b}}c{id}{{d}}', '{{{{id}}}}', '\{id}', '%s{id}%', '''{id}''',
	'{', '}', 'a{', '}a', '{}', '{ id}', '{id }', '{id', 'id}', '{id}}', '{{id}', '{a b}', '{"id}', '{"id"', '{""}', '{"id"x}', '{id.x}',
	'{odd.id}', '{id,"Id"}', '{{{id}', '{id}{', '{1id}', '{nowhere}', '{dropped}', '{ctid}', '{tableoid}', '{xmin}', '{"........pg.dropped.9........"}',
	'{' || repeat('x', 70) || '}', '{"' || repeat('x', 70) || '"}'
]) WITH ORDINALITY AS u(t, n) ORDER BY n;
-- The template itself has 1 to 255 bytes.
SELECT n, length(name_of(repeat('x', n) || '{id}')) AS length, left(name_of(repeat('x', n) || '{id}'), 5) AS name
FROM unnest('{250,251,252}'::int[]) n;
\set VERBOSITY default
SELECT leader_protect('odd', 'a{b');
SELECT leader_protect('odd', '{nowhere}');
\set VERBOSITY sqlstate
-- A column's name is cut as SQL cuts it.
DO $$
BEGIN
	EXECUTE format('CREATE TABLE long_name (%s int)', repeat('y', 70));
	EXECUTE format('SELECT leader_protect(''long_name'', ''{%s}'')', repeat('y', 70));
END $$;
SELECT election_of('INSERT INTO long_name VALUES (3)');
-- Braces that are literal make a constant name: one election, by statement.
CREATE TABLE constant (id int);
SELECT leader_protect('constant', 'a{{b}}');
SELECT relation, election, level, in_force FROM leader_protected WHERE relation = 'constant'::regclass;
SELECT epoch AS braces FROM leader_acquire('a{b}', 'a', '1 h') \gset
BEGIN;
SELECT leader_fence('a{b}', :braces);
INSERT INTO constant VALUES (1);
TRUNCATE constant;
COMMIT;
SELECT election_of('INSERT INTO constant VALUES (1)');
DROP TABLE constant, long_name;

-- Types: those whose text no setting changes.
CREATE DOMAIN text_domain AS text;
CREATE TYPE mood AS ENUM ('fine');
CREATE TABLE types (i2 int2, i4 int4, i8 int8, t text, v varchar(300), n name, u uuid,
	d text_domain, b bool, c char(5), "char" "char", f4 float4, f8 float8, num numeric, ts timestamptz, dt date, iv interval, by bytea,
	j jsonb, m mood, a int[], r regclass, o oid, money money, x xid, i inet,
	g text GENERATED ALWAYS AS (t || 'x') STORED, ident int GENERATED ALWAYS AS IDENTITY);
SELECT attname, atttypid::regtype, try(format($$SELECT leader_protect('types', '{%s}')$$, quote_ident(attname)))
FROM pg_attribute WHERE attrelid = 'types'::regclass AND attnum > 0 ORDER BY attnum;
\set VERBOSITY default
SELECT leader_protect('types', '{ts}');
SELECT leader_protect('types', '{g}');
\set VERBOSITY sqlstate
SELECT leader_protect('types', '{i2}|{i4}|{i8}|{t}|{v}|{n}|{u}|{ident}');
CREATE FUNCTION name_of_values(text) RETURNS text LANGUAGE sql AS $$
	SELECT public.election_of('INSERT INTO public.types (i2, i4, i8, t, v, n, u) OVERRIDING USER VALUE VALUES (' || $1 || ')')
$$;
SELECT name_of_values($$-32768, -2147483648, -9223372036854775808, '', '', '', '00000000-0000-0000-0000-000000000000'$$);
SELECT name_of_values($$32767, 2147483647, 9223372036854775807, 'té "x" ''y'' {id}', ' v ', 'n|n', 'FFFFFFFF-ffff-FFFF-ffff-FFFFFFFFFFFF'$$);
SELECT name_of_values($$0, -0, +0, NULL, 'v', 'n', '{a0eebc999c0b4ef8bb6d6bb9bd380a11}'$$) AS null_text,
	name_of_values($$0, 0, 0, 't', 'v', NULL, 'a0eebc999c0b4ef8bb6d6bb9bd380a11'$$) AS null_name,
	name_of_values($$NULL, 0, 0, 't', 'v', 'n', 'a0eebc999c0b4ef8bb6d6bb9bd380a11'$$) AS null_int2,
	name_of_values($$0, 0, 0, 't', 'v', 'n', NULL$$) AS null_uuid;
-- The same name whatever the session has set
CREATE FUNCTION name_here() RETURNS text LANGUAGE sql AS $$
	SELECT substring(public.name_of_values('1, 2, 1234567, ''té'', ''v'', ''n'', ''a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11''') FROM '.*[|]')
$$;
CREATE TABLE here AS SELECT name_here() AS name;
TABLE here;
SET DateStyle = 'SQL, DMY';
SET IntervalStyle = iso_8601;
SET extra_float_digits = -15;
SET bytea_output = escape;
SET TimeZone = 'Asia/Kathmandu';
SET lc_numeric = 'C';
SET quote_all_identifiers = on;
SET standard_conforming_strings = off;
SET backslash_quote = off;
SET escape_string_warning = off;
SET client_encoding = 'LATIN1';
SELECT name_here() = name AS same FROM here;
RESET client_encoding;
SET search_path = '';
SELECT public.name_here() = name AS same FROM public.here;
RESET ALL;
SET client_min_messages = warning;

-- Values that make no name
CREATE TABLE texts (t text, v text);
SELECT leader_protect('texts', '{t}{v}');
SELECT what, election_of(format('INSERT INTO texts VALUES (%L, %L)', t, v)) AS outcome
FROM (VALUES
	('empty', '', ''),
	('one byte', 'x', ''),
	('a newline', E'a\nb', ''),
	('a tab', 'a', E'\t'),
	('U+0001', E'\x01', 'a'),
	('U+007F', E'\x7f', 'a'),
	('U+0085', U&'\0085', 'a'),
	('a character in two columns', 'é', 'é'),
	('braces', '{v}', '}')) AS w(what, t, v);
SELECT bytes, left(election_of(format('INSERT INTO texts VALUES (%L, %L)', repeat('x', bytes - 3), 'é!')), 5) AS outcome
FROM unnest('{254,255,256,257,1000,100000}'::int[]) bytes;
\set VERBOSITY default
INSERT INTO texts VALUES (repeat('x', 200), repeat('y', 56));
INSERT INTO texts VALUES (E'a\n', '');
INSERT INTO texts VALUES ('', '');
\set VERBOSITY sqlstate
-- Two rows, one name: one election.  Long values are compressed or stored elsewhere.
CREATE FUNCTION fence_one(election text) RETURNS void LANGUAGE sql AS $$
	SELECT leader_fence(election, epoch) FROM leader_acquire(election, 'a', '1 h')
$$;
BEGIN;
SELECT fence_one('abc');
SELECT fence_one(repeat('z', 255));
INSERT INTO texts VALUES ('ab', 'c'), ('a', 'bc'), ('', 'abc'), ('abc', '');
ALTER TABLE texts ALTER t SET STORAGE EXTERNAL;
INSERT INTO texts VALUES (repeat('z', 255), '');
UPDATE texts SET t = t || v, v = '';
SELECT length(t), count(*) FROM texts GROUP BY t ORDER BY t;
SAVEPOINT s;
UPDATE texts SET v = 'x' WHERE t = 'abc';
ROLLBACK TO s;
DELETE FROM texts;
COMMIT;

-- Names that only look like others
SELECT election_of($$INSERT INTO texts VALUES ('shard/1', '')$$) AS without, election_of($$INSERT INTO texts VALUES ('shard/1 ', '')$$) AS with_blank;

-- Columns change under the fence: the writes fail, none passes.
CREATE TABLE changing (id int, extra int);
SELECT leader_protect('changing', 'shard/{id}');
CREATE FUNCTION with_token(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('leader_election.fence', (SELECT string_agg(election || '=' || epoch, ',') FROM terms), true);
	RETURN try(statement);
END $$;
SELECT with_token('INSERT INTO changing (id) VALUES (1)') AS before;
ALTER TABLE changing ALTER id TYPE bigint;
SELECT with_token('INSERT INTO changing (id) VALUES (1)') AS bigint;
ALTER TABLE changing ALTER id TYPE numeric;
SELECT with_token('INSERT INTO changing (id) VALUES (1)') AS retyped;
ALTER TABLE changing ALTER id TYPE int;
ALTER TABLE changing RENAME id TO other;
SELECT with_token('INSERT INTO changing (other) VALUES (1)') AS renamed;
ALTER TABLE changing RENAME other TO id;
SELECT with_token('INSERT INTO changing (id) VALUES (1)') AS back;
ALTER TABLE changing DROP id;
SELECT with_token('INSERT INTO changing (extra) VALUES (1)') AS dropped, with_token('TRUNCATE changing') LIKE 'passes%' AS truncates;
DROP TABLE changing;

-- Other triggers: what runs before may choose the shard, what runs after may not.
CREATE TABLE routed (id int, v int);
CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.id := 2; RETURN NEW; END $$;
CREATE TRIGGER "~~~route" BEFORE INSERT OR UPDATE ON routed FOR EACH ROW EXECUTE FUNCTION route();
SELECT try($$SELECT leader_protect('routed', 'shard/{id}')$$);
ALTER TRIGGER "~~~route" ON routed RENAME TO route;
SELECT leader_protect('routed', 'shard/{id}');
SELECT election_of('INSERT INTO routed VALUES (1, 1)');
ALTER TRIGGER route ON routed RENAME TO "~~~route";
SELECT with_token('INSERT INTO routed VALUES (1, 1)');
DROP TABLE routed;

-- Partitions that order their columns otherwise, and one partitioned by the shard
CREATE TABLE parts (shard int, v int) PARTITION BY LIST (shard);
CREATE TABLE part1 (v int, shard int);
ALTER TABLE parts ATTACH PARTITION part1 FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO parts VALUES (1, 1);
SELECT leader_protect('parts', 'shard/{shard}');
SELECT set_config('leader_election.fence', 'shard/1=' || :one, false) <> '' AS first \gset
SELECT try('INSERT INTO parts VALUES (1, 1)') AS own, try('INSERT INTO parts VALUES (2, 2)') AS other,
	try('INSERT INTO parts VALUES (1, 1), (2, 2), (1, 1)') AS turns, try('INSERT INTO part1 VALUES (2, 1)') AS leaf, try('UPDATE parts SET shard = 2') AS moved,
	try('TRUNCATE part1') AS truncate;
SELECT set_config('leader_election.fence', 'shard/1=' || :one || ',shard/2=' || :two, false) <> '' AS both \gset
SELECT try('INSERT INTO parts VALUES (1, 1), (2, 2), (1, 1)') AS turns, try('UPDATE parts SET shard = 2') AS moved, try('TRUNCATE part1') AS truncate;
RESET leader_election.fence;

-- Very many elections in one transaction: one is missing.
CREATE TABLE many (id int);
SELECT leader_protect('many', 'many {id}');
BEGIN;
SELECT count(leader_fence('many ' || i, epoch)) FROM generate_series(1, 200) i, leader_acquire('many ' || i, 'a', '1 h');
INSERT INTO many SELECT i FROM generate_series(1, 200) i, generate_series(1, 3) j ORDER BY j, i;
SELECT try('INSERT INTO many VALUES (201)') AS missing, try('UPDATE many SET id = id % 200 + 1') AS turned, try('UPDATE many SET id = id + 1') AS one_out;
COMMIT;
SELECT count(*), count(DISTINCT id) FROM many;

-- Who may: the owner of the table, whoever owns the elections.
SELECT leader_protect('shards', 'shard/{shard}'), leader_unprotect('shards');

DROP TABLE shards, terms, ways, ways_epoch, answers, odd, types, here, texts, parts, many;
DROP TYPE mood;
DROP DOMAIN text_domain;
DROP FUNCTION try, try_epoch, election_of, name_of, name_of_values, name_here, with_token, fence_one, route;
SELECT count(leader_release(election, epoch)) FROM leader_status WHERE election LIKE 'many %' OR election LIKE 'shard/%';
