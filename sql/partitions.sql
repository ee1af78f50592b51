--
-- Partitioned tables.  Guards P2 for every way to reach their rows: through the
-- parent, a middle level or a leaf; whether a partition was there before, was
-- created or attached later, or lies deeper; also where rows move from one to
-- another.  A partition is covered, or it does not become one.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_parts, regress_le_parts_other;
RESET client_min_messages;
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
-- The fences of tables; "cloned" by the server.
CREATE VIEW fences AS
SELECT tgrelid::regclass AS relation,
	string_agg(CASE tgtype & 1 WHEN 1 THEN 'row' ELSE 'statement' END
		|| CASE WHEN tgtype & 32 <> 0 THEN ' truncate' ELSE '' END
		|| CASE WHEN tgparentid <> 0 THEN ' cloned' ELSE '' END
		|| CASE tgenabled WHEN 'O' THEN '' ELSE ' ' || tgenabled::text END
		|| ' ' || replace(encode(tgargs, 'escape'), '\000', ';'), ', ' ORDER BY tgname) AS triggers
FROM pg_trigger WHERE tgfoid = 'leader_fence_check'::regproc
GROUP BY tgrelid ORDER BY tgrelid::regclass::text COLLATE "C";

SELECT epoch AS current FROM leader_acquire('parts', 'a', '1 h') \gset

-- Three levels and a default partition, all there before.  The columns of some
-- stand in another order.
CREATE TABLE pt (id int, k int, v int) PARTITION BY LIST (k);
CREATE TABLE pt1 PARTITION OF pt FOR VALUES IN (1);
CREATE TABLE pt2 (gone text, v int, k int, id int) PARTITION BY RANGE (v);
ALTER TABLE pt2 DROP gone;
CREATE TABLE pt2a (v int, id int, k int);
ALTER TABLE pt2 ATTACH PARTITION pt2a FOR VALUES FROM (0) TO (10);
CREATE TABLE pt2d PARTITION OF pt2 DEFAULT;
ALTER TABLE pt ATTACH PARTITION pt2 FOR VALUES IN (2);
CREATE TABLE ptd PARTITION OF pt DEFAULT;
INSERT INTO pt VALUES (1, 1, 1), (2, 2, 2), (3, 2, 20), (4, 4, 4);
SELECT leader_protect('pt', 'parts');
TABLE fences;
SELECT relation, election, level, in_force, problem FROM leader_protected ORDER BY relation::text COLLATE "C";

-- Every way to every level.
CREATE TABLE ways (n serial, statement text);
INSERT INTO ways (statement) VALUES
	('INSERT INTO pt VALUES (10, 1, 1)'),
	('INSERT INTO pt VALUES (10, 2, 1)'),
	('INSERT INTO pt VALUES (10, 2, 11)'),
	('INSERT INTO pt VALUES (10, 10, 1)'),
	('INSERT INTO pt2 (id, k, v) VALUES (10, 2, 1)'),
	('INSERT INTO pt1 (id, k, v) VALUES (10, 1, 1)'),
	('INSERT INTO pt2a (id, k, v) VALUES (10, 2, 1)'),
	('INSERT INTO pt2d (id, k, v) VALUES (10, 2, 11)'),
	('INSERT INTO ptd (id, k, v) VALUES (10, 10, 1)'),
	('INSERT INTO pt SELECT 10, 2, 1'),
	('UPDATE pt SET id = id + 100'),
	('UPDATE pt SET id = id + 100 WHERE k = 2 AND v = 20'),
	('UPDATE pt2 SET id = id + 100'),
	('UPDATE pt2d SET id = id + 100'),
	('UPDATE ptd SET id = id + 100'),
	('UPDATE pt SET k = 2 WHERE k = 1'),
	('UPDATE pt SET k = 7 WHERE v = 20'),
	('UPDATE pt2 SET v = 5 WHERE v = 20'),
	('DELETE FROM pt'),
	('DELETE FROM pt WHERE k = 4'),
	('DELETE FROM pt2'),
	('DELETE FROM pt2a'),
	('DELETE FROM ptd'),
	('TRUNCATE pt'),
	('TRUNCATE ONLY pt1'),
	('TRUNCATE pt2'),
	('TRUNCATE pt2a'),
	('TRUNCATE pt2d'),
	('TRUNCATE ptd'),
	('MERGE INTO pt t USING (VALUES (1)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 9'),
	('MERGE INTO pt t USING (VALUES (3)) s (id) ON t.id = s.id WHEN MATCHED THEN DELETE'),
	('MERGE INTO pt t USING (VALUES (9)) s (id) ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (9, 2, 9)'),
	('MERGE INTO pt t USING (VALUES (1)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = 2'),
	('INSERT INTO pt1 VALUES (1, 1, 1) ON CONFLICT DO NOTHING'),
	('WITH w AS (DELETE FROM pt2d RETURNING *) SELECT count(*) FROM w'),
	('CREATE TABLE pt9 PARTITION OF pt FOR VALUES IN (9); INSERT INTO pt9 VALUES (9, 9, 9)');
SELECT statement, try(statement) FROM ways ORDER BY n;
COPY pt FROM stdin;
11	2	11
\.
COPY pt2a (id, k, v) FROM stdin;
11	2	1
\.
-- Nothing happened.
SELECT tableoid::regclass, id, k, v FROM pt ORDER BY id;
-- With a token each is an ordinary statement; one that is not current is none.
SET leader_election.fence = 'parts=1';
SELECT try(statement), count(*) FROM ways GROUP BY 1;
SELECT 'parts=' || :current AS token \gset
SET leader_election.fence = :'token';
SELECT statement, try(statement) FROM ways ORDER BY n;
COPY pt FROM stdin;
11	2	11
\.
UPDATE pt SET k = 1 WHERE id = 11;
SELECT tableoid::regclass, id, k, v FROM pt ORDER BY id;
RESET leader_election.fence;

-- Created later, at every level, in every way
CREATE TABLE pt5 PARTITION OF pt FOR VALUES IN (5);
CREATE TABLE pt6 PARTITION OF pt FOR VALUES IN (6) PARTITION BY RANGE (v);
CREATE TABLE pt6d PARTITION OF pt6 DEFAULT;
CREATE TABLE IF NOT EXISTS pt5 PARTITION OF pt FOR VALUES IN (5);
DO $$ BEGIN CREATE TABLE pt7 PARTITION OF pt FOR VALUES IN (7); END $$;
CREATE FUNCTION make_partition(name text, k int) RETURNS void LANGUAGE plpgsql
SET search_path = '' AS $$
BEGIN
	EXECUTE format('CREATE TABLE public.%I PARTITION OF public.pt FOR VALUES IN (%L)', name, k);
END $$;
SELECT make_partition('pt 8', 8);
CREATE SCHEMA parts_schema
	CREATE TABLE pt9 PARTITION OF public.pt FOR VALUES IN (9)
	CREATE TABLE other (id int)
	CREATE TABLE pt10 PARTITION OF public.pt FOR VALUES IN (10) PARTITION BY LIST (v);
BEGIN;
CREATE TABLE pt11 PARTITION OF pt FOR VALUES IN (11);
SAVEPOINT s;
CREATE TABLE pt12 PARTITION OF pt FOR VALUES IN (12);
INSERT INTO pt12 VALUES (12, 12, 12);
ROLLBACK TO s;
CREATE TABLE pt12 PARTITION OF pt FOR VALUES IN (12);
COMMIT;
CREATE TABLE pt13 PARTITION OF pt (v DEFAULT 13, CHECK (id > 0), PRIMARY KEY (id)) FOR VALUES IN (13);
-- Attached later: with rows that nobody has judged, with partitions
CREATE TABLE pt14 (v int, k int, id int);
INSERT INTO pt14 VALUES (14, 14, 14);
ALTER TABLE pt ATTACH PARTITION pt14 FOR VALUES IN (14);
CREATE TABLE pt15 (LIKE pt) PARTITION BY RANGE (v);
CREATE TABLE pt15a PARTITION OF pt15 FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE pt15aa PARTITION OF pt15a DEFAULT;
ALTER TABLE IF EXISTS pt ATTACH PARTITION pt15 FOR VALUES IN (15);
CREATE UNLOGGED TABLE pt16 PARTITION OF pt FOR VALUES IN (16);
SELECT count(*) AS protected, count(*) FILTER (WHERE in_force) AS in_force, string_agg(problem, ', ') AS problem
FROM leader_protected;
SELECT relation, triggers, try('TRUNCATE ' || relation) AS truncate, try(format(
	'INSERT INTO %s (id, k, v) VALUES (1, %s, 1)', relation,
	coalesce(substring(relation::text FROM '[0-9]+'), '99'))) AS insert
FROM fences WHERE relation::text !~ '^pt[12]?[ad]?$';

-- What has no business here is left alone.
CREATE TABLE alone (id int);
CREATE TABLE alone_parts (id int) PARTITION BY LIST (id);
CREATE TABLE alone_part PARTITION OF alone_parts DEFAULT;
CREATE TABLE alone_copy AS TABLE pt;
CREATE TABLE alone_like (LIKE pt INCLUDING ALL);
ALTER TABLE alone ADD more int, ADD CHECK (more > 0);
SELECT * FROM fences WHERE relation::text LIKE 'alone%';
ALTER TABLE IF EXISTS nowhere ATTACH PARTITION alone FOR VALUES IN (1);
ALTER TABLE IF EXISTS nowhere ATTACH PARTITION nowhere_either FOR VALUES IN (1);
DROP TABLE alone, alone_parts, alone_copy, alone_like;

-- It cannot be undone in part.
SELECT try($$SELECT leader_unprotect('pt2')$$) AS middle, try($$SELECT leader_unprotect('pt15aa')$$) AS leaf,
	try('DROP TRIGGER "~~leader_fence" ON pt1') AS cloned,
	try($$SELECT leader_protect('pt2', 'parts')$$) AS again, try($$SELECT leader_protect('pt', 'parts other')$$) AS other;
SELECT leader_unprotect('pt');
TABLE fences;
SELECT try('INSERT INTO pt VALUES (50, 1, 1), (50, 15, 1)') AS insert, try('TRUNCATE pt15') AS truncate;
SELECT leader_protect('pt', 'parts');
SELECT try('INSERT INTO pt VALUES (50, 1, 1), (50, 15, 1)') AS insert, try('TRUNCATE pt15aa') AS truncate;

-- Detached: no longer judged by row, which the view tells, as somebody may still
-- write it who believes to lead.  TRUNCATE stays judged until that is undone.
-- Back again it is covered.
ALTER TABLE pt DETACH PARTITION pt1;
ALTER TABLE pt DETACH PARTITION pt15;
SELECT relation, in_force, problem IS NOT NULL AS told FROM leader_protected WHERE NOT in_force ORDER BY relation::text COLLATE "C";
SELECT try('INSERT INTO pt1 VALUES (1, 1, 1)') AS insert, try('TRUNCATE pt1') AS truncate;
ALTER TABLE pt ATTACH PARTITION pt1 FOR VALUES IN (1);
ALTER TABLE pt ATTACH PARTITION pt15 FOR VALUES IN (15);
SELECT relation, in_force, problem FROM leader_protected WHERE NOT in_force;
SELECT relation, triggers, try('INSERT INTO ' || relation || ' (id, k, v) VALUES (1, 15, 1)') AS insert,
	try('TRUNCATE ' || relation) AS truncate
FROM fences WHERE relation::text ~ '^pt15';
ALTER TABLE pt DETACH PARTITION ptd;
ALTER TABLE pt DETACH PARTITION pt1 CONCURRENTLY;
SELECT relation, in_force, problem IS NOT NULL AS told FROM leader_protected WHERE NOT in_force ORDER BY relation::text COLLATE "C";
SELECT leader_unprotect('pt1');
SELECT try('INSERT INTO pt1 VALUES (1, 1, 1)') AS insert, try('TRUNCATE pt1') AS truncate;

-- What is protected itself does not become a partition, whoever its leader is;
-- nor, when it is judged by statement, a partition of a table that is not protected.
SELECT leader_protect('pt1', 'parts');
SELECT try('ALTER TABLE pt ATTACH PARTITION pt1 FOR VALUES IN (1)');
SELECT leader_unprotect('pt1');
SELECT leader_protect('pt1', 'parts other');
SELECT try('ALTER TABLE pt ATTACH PARTITION pt1 FOR VALUES IN (1)');
CREATE TABLE open (LIKE pt) PARTITION BY LIST (k);
SELECT try('ALTER TABLE open ATTACH PARTITION pt1 FOR VALUES IN (1)');
SELECT leader_unprotect('pt1');
ALTER TABLE open ATTACH PARTITION pt1 FOR VALUES IN (1);
-- Protected as a partition of what is not, it is judged by row.
SELECT leader_protect('pt1', 'parts');
SELECT * FROM fences WHERE relation = 'pt1'::regclass;
SELECT try('INSERT INTO open VALUES (1, 1, 1)') AS parent, try('INSERT INTO pt1 VALUES (1, 1, 1)') AS leaf,
	try('TRUNCATE open') AS truncate;
-- Its parent is not protected before that is undone.
SELECT try($$SELECT leader_protect('open', 'parts')$$);
SELECT leader_unprotect('pt1');
DROP TABLE open;

-- Foreign tables cannot be judged, and do not become partitions.
CREATE FOREIGN DATA WRAPPER regress_le_parts_fdw;
CREATE SERVER regress_le_parts_server FOREIGN DATA WRAPPER regress_le_parts_fdw;
CREATE FOREIGN TABLE foreign_part (id int, k int, v int) SERVER regress_le_parts_server;
CREATE TABLE with_foreign (id int, k int, v int) PARTITION BY LIST (k);
SELECT try('CREATE FOREIGN TABLE f PARTITION OF pt FOR VALUES IN (77) SERVER regress_le_parts_server') AS created,
	try('CREATE FOREIGN TABLE f PARTITION OF pt6 FOR VALUES FROM (1) TO (2) SERVER regress_le_parts_server') AS deeper,
	try('ALTER TABLE pt ATTACH PARTITION foreign_part FOR VALUES IN (77)') AS attached;
ALTER TABLE with_foreign ATTACH PARTITION foreign_part FOR VALUES IN (77);
SELECT try($$SELECT leader_protect('with_foreign', 'parts')$$) AS there_before,
	try('ALTER TABLE pt ATTACH PARTITION with_foreign FOR VALUES IN (77)') AS attached_deeper;
SET client_min_messages = warning;
DROP FOREIGN DATA WRAPPER regress_le_parts_fdw CASCADE;
RESET client_min_messages;
DROP TABLE with_foreign;

-- Temporary ones
CREATE TEMP TABLE temp_parts (id int, k int) PARTITION BY LIST (k);
CREATE TEMP TABLE temp_part PARTITION OF temp_parts FOR VALUES IN (1);
SELECT leader_protect('temp_parts', 'parts');
CREATE TEMP TABLE temp_later PARTITION OF temp_parts DEFAULT;
SELECT try('INSERT INTO temp_part VALUES (1, 1)') AS leaf, try('INSERT INTO temp_parts VALUES (1, 2)') AS later,
	try('TRUNCATE temp_later') AS truncate;
DROP TABLE temp_parts;

-- Names and paths: all that the extension could ask for by a bare name stands in
-- the way, and schema and tables have odd names.
CREATE SCHEMA "Hostile ""x"" 'y'";
SET search_path = "Hostile ""x"" 'y'", pg_catalog, public;
CREATE FUNCTION captured(a anyelement, b anyelement) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'captured'; END $$;
CREATE OPERATOR = (FUNCTION = captured, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE FUNCTION captured(a oid, b oid) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'captured'; END $$;
CREATE OPERATOR = (FUNCTION = captured, LEFTARG = oid, RIGHTARG = oid);
CREATE FUNCTION leader_fence_check() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'captured'; END $$;
CREATE FUNCTION pg_event_trigger_ddl_commands() RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'captured'; END $$;
CREATE TABLE pg_class (id int);
CREATE TABLE "Odd. ""Name"" 'z'\" (id int, k int, v int);
ALTER TABLE public.pt ATTACH PARTITION "Odd. ""Name"" 'z'\" FOR VALUES IN (20);
CREATE TABLE "Created ""Here""" PARTITION OF public.pt FOR VALUES IN (21);
RESET search_path;
ALTER TABLE pt DETACH PARTITION "Hostile ""x"" 'y'"."Odd. ""Name"" 'z'\";
SET search_path = '';
ALTER TABLE public.pt ATTACH PARTITION "Hostile ""x"" 'y'"."Odd. ""Name"" 'z'\" FOR VALUES IN (20);
RESET search_path;
SELECT * FROM fences WHERE relation::text LIKE '%Hostile%';
SELECT try('INSERT INTO pt VALUES (1, 20, 1)'), try('INSERT INTO pt VALUES (1, 21, 1)'),
	try($$TRUNCATE "Hostile ""x"" 'y'"."Odd. ""Name"" 'z'\"$$), try($$TRUNCATE "Hostile ""x"" 'y'"."Created ""Here"""$$);
ALTER TABLE "Hostile ""x"" 'y'"."Created ""Here""" RENAME TO renamed;
SELECT try('INSERT INTO pt VALUES (1, 21, 1)'), try($$TRUNCATE "Hostile ""x"" 'y'".renamed$$);
SET client_min_messages = warning;
DROP SCHEMA "Hostile ""x"" 'y'" CASCADE;
RESET client_min_messages;

-- Owners.  Who owns the parent makes partitions; what belongs to somebody else
-- keeps it from being protected, or from joining.
CREATE ROLE regress_le_parts;
CREATE ROLE regress_le_parts_other;
CREATE SCHEMA parts_owner;
GRANT ALL ON SCHEMA parts_owner TO regress_le_parts, regress_le_parts_other;
SET search_path = parts_owner, public;
SET ROLE regress_le_parts;
CREATE TABLE own (id int, k int) PARTITION BY LIST (k);
SELECT leader_protect('own', 'parts of somebody');
CREATE TABLE own1 PARTITION OF own FOR VALUES IN (1);
CREATE TABLE own2 (id int, k int) PARTITION BY LIST (id);
CREATE TABLE own2d PARTITION OF own2 DEFAULT;
RESET ROLE;
ALTER TABLE own2d OWNER TO regress_le_parts_other;
SELECT * FROM fences WHERE relation::text LIKE 'own%';
SET ROLE regress_le_parts;
SELECT try($$SELECT leader_protect('own2', 'parts of somebody')$$) AS protect,
	try('ALTER TABLE own ATTACH PARTITION own2 FOR VALUES IN (2)') AS attach;
RESET ROLE;
-- A superuser may do that, and it is nobody's to undo who does not own all.
ALTER TABLE own ATTACH PARTITION own2 FOR VALUES IN (2);
SET ROLE regress_le_parts;
SELECT try($$SELECT leader_unprotect('own')$$);
SET ROLE regress_le_parts_other;
SELECT try('INSERT INTO own2d VALUES (1, 2)') AS insert, try('TRUNCATE own2d') AS truncate,
	try($$SELECT leader_unprotect('own2d')$$) AS unprotect, try($$SELECT leader_unprotect('own2')$$) AS middle;
RESET ROLE;
RESET search_path;
-- Who may not use the extension's schema has no part in this: tables of his own
-- he makes as ever; a partition that he makes is covered, or there is none.
REVOKE USAGE ON SCHEMA public FROM PUBLIC;
SET ROLE regress_le_parts;
CREATE TABLE parts_owner.unrelated (id int);
ALTER TABLE parts_owner.unrelated ADD more int;
DO $$
BEGIN
	CREATE TABLE parts_owner.own3 PARTITION OF parts_owner.own FOR VALUES IN (3);
EXCEPTION WHEN insufficient_privilege THEN
END $$;
RESET ROLE;
GRANT USAGE ON SCHEMA public TO PUBLIC;
SELECT to_regclass('parts_owner.own3') IS NULL
	OR try('TRUNCATE parts_owner.own3') || try('INSERT INTO parts_owner.own3 VALUES (1, 3)') = 'LE002LE002' AS none_or_covered;
DROP TABLE parts_owner.own;

-- With an epoch column.  Rows move by deletion and insertion: the token that
-- deletes must be presented, and the stamp goes with the row.
CREATE TABLE pe (id int, k int, e bigint) PARTITION BY LIST (k);
CREATE TABLE pe1 PARTITION OF pe FOR VALUES IN (1);
CREATE TABLE pe2 (e bigint, k int, id int);
ALTER TABLE pe ATTACH PARTITION pe2 FOR VALUES IN (2);
INSERT INTO pe VALUES (1, 1, NULL), (2, 2, 7), (3, 1, 7);
SELECT leader_protect('pe', 'parts', 'e');
SELECT * FROM fences WHERE relation::text LIKE 'pe%';
CREATE TABLE ways_epoch (n serial, statement text);
INSERT INTO ways_epoch (statement) VALUES
	('INSERT INTO pe VALUES (4, 1, CURRENT)'),
	('INSERT INTO pe2 (id, k, e) VALUES (4, 2, CURRENT)'),
	('INSERT INTO pe VALUES (4, 1, 7)'),
	('INSERT INTO pe2 (id, k, e) VALUES (4, 2, 7)'),
	('INSERT INTO pe VALUES (4, 1, NULL)'),
	('INSERT INTO pe2 (id, k) VALUES (4, 2)'),
	('UPDATE pe SET id = id + 100, e = CURRENT'),
	('UPDATE pe SET id = id + 100, e = 7 WHERE e IS NULL'),
	('UPDATE pe SET id = id + 100, e = 7 WHERE e = 7'),
	('UPDATE pe SET id = id + 100, e = 8'),
	('UPDATE pe SET id = id + 100'),
	('UPDATE pe SET k = 3 - k, e = CURRENT'),
	('UPDATE pe SET k = 3 - k, e = 8'),
	('UPDATE pe SET k = 3 - k, e = 7 WHERE e = 7'),
	('UPDATE pe SET k = 3 - k, e = NULL'),
	('UPDATE pe SET k = 3 - k'),
	('DELETE FROM pe'),
	('TRUNCATE pe2');
CREATE FUNCTION try_epoch(current bigint) RETURNS TABLE (statement text, answer text) LANGUAGE sql AS $$
	SELECT statement, try(replace(statement, 'CURRENT', current::text)) FROM ways_epoch ORDER BY n
$$;
SELECT * FROM try_epoch(:current);
SET leader_election.fence = 'parts=7';
SELECT * FROM try_epoch(:current);
SET leader_election.fence = :'token';
SELECT * FROM try_epoch(:current);
UPDATE pe SET k = 3 - k;
SELECT tableoid::regclass, id, k, e = :current AS current FROM pe ORDER BY id;
RESET leader_election.fence;

-- As a replica applies changes: judged on every partition, there before or later
SELECT leader_unprotect('pe');
SELECT leader_protect('pe', 'parts', 'e', true);
CREATE TABLE pe3 PARTITION OF pe FOR VALUES IN (3);
CREATE TABLE pe4 (LIKE pe) PARTITION BY LIST (id);
CREATE TABLE pe4d PARTITION OF pe4 DEFAULT;
ALTER TABLE pe ATTACH PARTITION pe4 FOR VALUES IN (4);
SELECT * FROM fences WHERE relation::text LIKE 'pe%';
SET session_replication_role = replica;
SELECT k, try(format('INSERT INTO pe VALUES (9, %s, 7)', k)) AS stale,
	try(format('INSERT INTO pe%s (id, k, e) VALUES (9, %s, %s)', k, k, :current)) AS current,
	try(format('INSERT INTO pe%s (id, k) VALUES (9, %s)', k, k)) AS none, try('TRUNCATE pe' || k) AS truncate
FROM generate_series(1, 4) k ORDER BY k;
RESET session_replication_role;
SELECT relation, replica, in_force, problem FROM leader_protected WHERE relation::text LIKE 'pe%'
ORDER BY relation::text COLLATE "C";

-- Partitioned by the epoch.  It is not known when a row without one is routed,
-- so where its stamp does not belong such a row is refused; no row is stored with
-- an epoch that is not current.
CREATE TABLE pk (id int, e bigint) PARTITION BY RANGE (e);
CREATE TABLE pk_old PARTITION OF pk FOR VALUES FROM (0) TO (1000);
CREATE TABLE pk_new PARTITION OF pk FOR VALUES FROM (1000) TO (MAXVALUE);
CREATE TABLE pk_null PARTITION OF pk DEFAULT;
INSERT INTO pk VALUES (1, 7), (2, NULL);
SELECT leader_protect('pk', 'parts', 'e');
SELECT try(format('INSERT INTO pk VALUES (3, %s)', :current)) AS current, try('INSERT INTO pk VALUES (3, 7)') AS stale,
	try('INSERT INTO pk VALUES (3, NULL)') AS none, try('UPDATE pk SET id = 9') AS "update";
SET leader_election.fence = :'token';
SELECT try('INSERT INTO pk VALUES (3, NULL)') AS stamped, try('INSERT INTO pk_null VALUES (3, NULL)') AS stamped_in_leaf,
	try('UPDATE pk SET id = 9') AS "update", try('UPDATE pk_old SET id = 9') AS update_leaf;
UPDATE pk SET id = id + 10;
SELECT tableoid::regclass, id, e = :current AS current FROM pk ORDER BY id;
RESET leader_election.fence;

-- A trigger of a partition that could change what was judged
CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.e := 7; RETURN NEW; END $$;
CREATE TABLE pe5 (LIKE pe);
CREATE TRIGGER "~~~forge" BEFORE INSERT ON pe5 FOR EACH ROW EXECUTE FUNCTION forge();
SELECT try('ALTER TABLE pe ATTACH PARTITION pe5 FOR VALUES IN (5)');
ALTER TRIGGER "~~~forge" ON pe5 RENAME TO forge;
ALTER TABLE pe ATTACH PARTITION pe5 FOR VALUES IN (5);
SELECT try(format('INSERT INTO pe VALUES (1, 5, %s)', :current)) AS forged_before;
ALTER TRIGGER forge ON pe5 RENAME TO "~~~forge";
SELECT try(format('INSERT INTO pe VALUES (1, 5, %s)', :current)) AS forged_after;
DROP TABLE pe5;

-- Switched off for maintenance, and on again
SET leader_election.enforce = off;
CREATE TABLE pe6 PARTITION OF pe FOR VALUES IN (6);
SELECT try('INSERT INTO pe VALUES (6, 6, 7)') AS insert, try('TRUNCATE pe') AS truncate;
RESET leader_election.enforce;
SELECT try('INSERT INTO pe VALUES (6, 6, 7)') AS insert, try('TRUNCATE pe6') AS truncate;

SET client_min_messages = warning;
DROP TABLE pt, ptd, pe, pk, ways, ways_epoch;
DROP VIEW fences;
DROP FUNCTION try, try_epoch, make_partition, forge;
DROP SCHEMA parts_schema, parts_owner CASCADE;
DROP ROLE regress_le_parts, regress_le_parts_other;
