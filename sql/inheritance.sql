--
-- Inheritance.  Guards P2 where a table can be written through another one: what
-- lies below a protected table is judged by row and by its parent's rule, whenever
-- it came there; what cannot be judged so does not come there.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_heir, regress_le_heir_other;
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
CREATE VIEW fences AS
SELECT tgrelid::regclass AS relation,
	string_agg(CASE tgtype & 1 WHEN 1 THEN 'row' ELSE 'statement' END
		|| CASE WHEN tgtype & 63 = 34 THEN ' truncate' ELSE '' END
		|| CASE tgenabled WHEN 'O' THEN '' ELSE ' ' || tgenabled::text END
		|| ' ' || replace(encode(tgargs, 'escape'), '\000', ';'), ', ' ORDER BY tgname) AS triggers
FROM pg_trigger WHERE tgfoid = 'leader_fence_check'::regproc
GROUP BY tgrelid ORDER BY tgrelid::regclass::text COLLATE "C";

SELECT epoch AS current FROM leader_acquire('heirs', 'a', '1 h') \gset
SELECT 'heirs=' || :current AS token \gset

-- A parent judged by statement, with children and grandchildren there before: they
-- are judged by row, as statements may name any of their parents.
CREATE TABLE top (id int, v int);
CREATE TABLE middle (more text) INHERITS (top);
CREATE TABLE leaf () INHERITS (middle);
CREATE TABLE leaf2 (gone int, v int, id int);
ALTER TABLE leaf2 DROP gone;
ALTER TABLE leaf2 INHERIT top;
INSERT INTO top VALUES (1, 1);
INSERT INTO middle VALUES (2, 2);
INSERT INTO leaf VALUES (3, 3);
INSERT INTO leaf2 (id, v) VALUES (4, 4);
SELECT leader_protect('top', 'heirs');
TABLE fences;
CREATE TABLE ways (n serial, statement text);
INSERT INTO ways (statement) VALUES
	('INSERT INTO top VALUES (9, 9)'),
	('INSERT INTO middle VALUES (9, 9)'),
	('INSERT INTO leaf SELECT 9, 9'),
	('INSERT INTO leaf2 VALUES (9, 9)'),
	('UPDATE top SET v = 9'),
	('UPDATE ONLY top SET v = 9'),
	('UPDATE top SET v = 9 WHERE id = 4'),
	('UPDATE middle SET v = 9'),
	('UPDATE ONLY middle SET v = 9'),
	('UPDATE leaf2 SET v = 9'),
	('DELETE FROM top'),
	('DELETE FROM middle'),
	('DELETE FROM middle WHERE id = 3'),
	('DELETE FROM leaf'),
	('TRUNCATE top'),
	('TRUNCATE ONLY top'),
	('TRUNCATE middle'),
	('TRUNCATE leaf'),
	('TRUNCATE leaf2'),
	('WITH w AS (UPDATE leaf2 SET v = 9 RETURNING *) SELECT count(*) FROM w');
SELECT statement, try(statement) FROM ways ORDER BY n;
COPY leaf FROM stdin;
9	9	\N
\.
SET leader_election.fence = 'heirs=1';
SELECT try(statement), count(*) FROM ways GROUP BY 1;
SET leader_election.fence = :'token';
SELECT statement, try(statement) FROM ways ORDER BY n;
RESET leader_election.fence;
SELECT tableoid::regclass, id, v FROM top ORDER BY id;

CREATE TABLE top_epoch (id int, e bigint);
SELECT leader_protect('top_epoch', 'heirs', 'e');

-- Children that come later
CREATE TABLE later1 () INHERITS (top);
CREATE TABLE later2 (LIKE top);
ALTER TABLE later2 INHERIT top;
CREATE TABLE later3 (LIKE top);
CREATE TABLE later4 () INHERITS (later3);
ALTER TABLE later3 ADD extra int, INHERIT top;
CREATE TABLE later5 (e bigint) INHERITS (leaf);
DO $$ BEGIN CREATE TABLE later6 () INHERITS (top); END $$;
CREATE SCHEMA heirs_schema
	CREATE TABLE later7 () INHERITS (public.top)
	CREATE TABLE other (id int);
CREATE TEMP TABLE later8 () INHERITS (top);
CREATE UNLOGGED TABLE later9 () INHERITS (top);
ALTER TABLE IF EXISTS nowhere INHERIT top;
ALTER TABLE IF EXISTS later9 NO INHERIT top, INHERIT top;
BEGIN;
CREATE TABLE later10 () INHERITS (top);
INSERT INTO later10 VALUES (1, 1);
ROLLBACK;
SELECT relation, triggers, try(format('INSERT INTO %s (id, v) VALUES (1, 1)', relation)) AS insert,
	try('TRUNCATE ' || relation) AS truncate
FROM fences WHERE relation::text LIKE '%later%';
SELECT relation, in_force, problem FROM leader_protected WHERE NOT in_force;

-- Gone from its parent a child keeps its own protection, until that is undone.
ALTER TABLE later2 NO INHERIT top;
SELECT try('INSERT INTO later2 VALUES (1, 1)') AS insert, try('TRUNCATE later2') AS truncate;
SELECT relation, in_force, problem FROM leader_protected WHERE relation = 'later2'::regclass;
ALTER TABLE later2 INHERIT top;
ALTER TABLE later2 NO INHERIT top;
SELECT leader_unprotect('later2');
SELECT try('INSERT INTO later2 VALUES (1, 1)') AS insert, try('TRUNCATE later2') AS truncate;

-- Not in part
SELECT try($$SELECT leader_unprotect('middle')$$) AS middle, try($$SELECT leader_unprotect('leaf')$$) AS leaf,
	try($$SELECT leader_protect('leaf', 'heirs')$$) AS again, try($$SELECT leader_protect('top', 'heirs')$$) AS top;
SELECT leader_unprotect('top');
TABLE fences;
SELECT try(statement) LIKE 'passes%' AS passes, count(*) FROM ways GROUP BY 1;
-- What lies below is protected by itself before: the parent waits for that to be undone.
SELECT leader_protect('middle', 'heirs');
SELECT * FROM fences WHERE relation::text IN ('middle', 'leaf', 'top');
SELECT try('UPDATE top SET v = 9 WHERE id = 2') AS through_parent, try('UPDATE top SET v = 9 WHERE id = 1') AS parent,
	try('DELETE FROM leaf') AS leaf, try('TRUNCATE top') AS truncate;
SELECT try($$SELECT leader_protect('top', 'heirs')$$);
SELECT leader_unprotect('middle');

-- Judged by statement it cannot get a parent, by row it can.
CREATE TABLE by_statement (LIKE top);
CREATE TABLE by_row (LIKE top);
ALTER TABLE by_row ADD e bigint;
SELECT leader_protect('by_statement', 'heirs'), leader_protect('by_row', 'heirs', 'e');
SELECT try('ALTER TABLE by_statement INHERIT top') AS by_statement, try('ALTER TABLE by_row INHERIT top') AS by_row;
SELECT leader_protect('top', 'heirs');
SELECT try('ALTER TABLE by_statement INHERIT top') AS by_statement, try('ALTER TABLE by_row INHERIT top') AS by_row;
SELECT leader_unprotect('top'), leader_unprotect('by_statement'), leader_unprotect('by_row');

-- Several parents.  All must say the same.
CREATE TABLE mother (id int, v int, e bigint);
CREATE TABLE father (id int, v int, e bigint);
SET client_min_messages = warning;
SELECT leader_protect('mother', 'heirs', 'e'), leader_protect('father', 'heirs', 'e');
CREATE TABLE child () INHERITS (mother, father);
CREATE TABLE child2 (LIKE mother);
ALTER TABLE child2 INHERIT mother, INHERIT father;
SELECT * FROM fences WHERE relation::text ~ 'er$|^child';
SELECT try($$SELECT leader_unprotect('child')$$);
-- One parent's is undone: as long as the other one's is not, the child is judged.
DO $$
BEGIN
	PERFORM leader_unprotect('mother');
EXCEPTION WHEN object_not_in_prerequisite_state THEN
END $$;
SELECT try('INSERT INTO child VALUES (1, 1, 1)') AS insert, try('TRUNCATE child') AS truncate,
	try('INSERT INTO child2 VALUES (1, 1, 1)') AS insert2, try('TRUNCATE father') AS truncate_father;
DROP TABLE child, child2, mother, father;
CREATE TABLE mother (id int, v int, e bigint);
CREATE TABLE father (id int, v int, e bigint);
SELECT leader_protect('mother', 'heirs', 'e'), leader_protect('father', 'heirs other', 'e');
SELECT try('CREATE TABLE child () INHERITS (mother, father)') AS created;
CREATE TABLE child () INHERITS (mother);
SELECT try('ALTER TABLE child INHERIT father') AS joined;
SELECT leader_unprotect('father');
ALTER TABLE child INHERIT father;
-- Through a parent that is not protected
SELECT try('UPDATE father SET v = 1') AS no_row, try('TRUNCATE father') AS truncate;
DROP TABLE child, mother, father;
RESET client_min_messages;

-- A parent that is also for replicas: the child is too, or does not come there.
CREATE TABLE strict (id int, e bigint);
CREATE TABLE lax (id int, e bigint);
SELECT leader_protect('strict', 'heirs', 'e', true), leader_protect('lax', 'heirs', 'e');
CREATE TABLE strict_child () INHERITS (strict);
DO $$
BEGIN
	ALTER TABLE lax INHERIT strict;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
END $$;
SET session_replication_role = replica;
SELECT try('INSERT INTO strict_child VALUES (1, 1)') AS stale, try('INSERT INTO strict_child VALUES (1, NULL)') AS none;
SELECT NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 'lax'::regclass)
	OR try('INSERT INTO lax VALUES (1, 1)') = 'LE001' AS no_child_or_strict;
RESET session_replication_role;
DROP TABLE strict, strict_child, lax CASCADE;

-- Columns: what the fence needs is inherited, and must fit where it is.
SELECT try($$CREATE TABLE c (e bigint GENERATED ALWAYS AS IDENTITY) INHERITS (top_epoch)$$) AS identity;
CREATE TABLE epoch_child (x int, e bigint, id int);
ALTER TABLE epoch_child DROP x, INHERIT top_epoch;
SELECT try('INSERT INTO epoch_child (id, e) VALUES (1, 1)') AS stale,
	try(format('INSERT INTO epoch_child (id, e) VALUES (1, %s)', :current)) AS current,
	try('UPDATE top_epoch SET id = 2') AS no_row;
CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.e := 7; RETURN NEW; END $$;
CREATE TABLE forging (LIKE top_epoch);
CREATE TRIGGER "~~~forge" BEFORE INSERT ON forging FOR EACH ROW EXECUTE FUNCTION forge();
SELECT try('ALTER TABLE forging INHERIT top_epoch');
ALTER TABLE forging DISABLE TRIGGER "~~~forge", INHERIT top_epoch;
ALTER TABLE forging ENABLE TRIGGER "~~~forge";
SELECT try(format('INSERT INTO forging VALUES (1, %s)', :current));

-- Foreign tables cannot be judged.
CREATE FOREIGN DATA WRAPPER regress_le_heirs_fdw;
CREATE SERVER regress_le_heirs_server FOREIGN DATA WRAPPER regress_le_heirs_fdw;
CREATE FOREIGN TABLE foreign_heir (id int, e bigint) SERVER regress_le_heirs_server;
SELECT try('ALTER FOREIGN TABLE foreign_heir INHERIT top_epoch') AS joined, try('ALTER TABLE foreign_heir INHERIT top_epoch') AS joined2,
	try('CREATE FOREIGN TABLE f () INHERITS (top_epoch) SERVER regress_le_heirs_server') AS created;
CREATE TABLE with_foreign (id int, e bigint);
ALTER FOREIGN TABLE foreign_heir INHERIT with_foreign;
SELECT try($$SELECT leader_protect('with_foreign', 'heirs')$$) AS there_before,
	try('ALTER TABLE with_foreign INHERIT top_epoch') AS deeper;
SET client_min_messages = warning;
DROP FOREIGN DATA WRAPPER regress_le_heirs_fdw CASCADE;
RESET client_min_messages;

-- Owners: who may not make a trigger on the child cannot bring it there.
CREATE ROLE regress_le_heir;
CREATE ROLE regress_le_heir_other;
CREATE SCHEMA heirs_owner;
GRANT ALL ON SCHEMA heirs_owner TO regress_le_heir, regress_le_heir_other;
SET ROLE regress_le_heir;
CREATE TABLE heirs_owner.own (id int);
SELECT leader_protect('heirs_owner.own', 'heirs of somebody');
CREATE TABLE heirs_owner.own1 () INHERITS (heirs_owner.own);
CREATE TABLE heirs_owner.own2 (id int);
CREATE TABLE heirs_owner.own3 () INHERITS (heirs_owner.own2);
RESET ROLE;
ALTER TABLE heirs_owner.own3 OWNER TO regress_le_heir_other;
SET ROLE regress_le_heir;
SELECT try($$ALTER TABLE heirs_owner.own2 INHERIT heirs_owner.own$$) AS joins,
	try($$SELECT leader_protect('heirs_owner.own2', 'heirs of somebody')$$) AS protects;
RESET ROLE;
SELECT * FROM fences WHERE relation::text LIKE '%own%';

SET client_min_messages = warning;
DROP TABLE top, top_epoch, by_statement, by_row, later2, later3, ways, with_foreign CASCADE;
DROP VIEW fences;
DROP FUNCTION try, forge;
DROP SCHEMA heirs_schema, heirs_owner CASCADE;
DROP ROLE regress_le_heir, regress_le_heir_other;
