--
-- The view leader_protected.  Guards that a table is shown in force only if every
-- way to write it and what lies below it meets the fence, and that the view says
-- why where it is not; that nobody's doing hides the tables of others.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_viewer;
\set VERBOSITY sqlstate

SELECT epoch AS current FROM leader_acquire('viewed', 'a', '1 h') \gset
CREATE VIEW viewed AS
SELECT relation, election, epoch_column, level, replica, in_force, regexp_split_to_table(coalesce(problem, ''), '; ') AS problem
FROM leader_protected ORDER BY relation::text COLLATE "C", problem COLLATE "C";
TABLE leader_protected;

-- All in order: every kind
CREATE TABLE plain (id int, v int, e bigint);
CREATE TABLE epochs (id int, v int, e bigint);
CREATE TABLE replicas (id int, v int, e bigint);
CREATE TABLE templates (id int, v text, e bigint);
CREATE TABLE parts (id int, v int, e bigint) PARTITION BY LIST (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2) PARTITION BY LIST (v);
CREATE TABLE part2d PARTITION OF part2 DEFAULT;
CREATE TABLE parent (id int, v int, e bigint);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE "Not ""here"" yet" (id int);
SELECT leader_protect('plain', 'viewed'), leader_protect('epochs', 'viewed', 'e'), leader_protect('replicas', 'viewed', 'e', true),
	leader_protect('templates', 'shard {v}/{id}', 'e'), leader_protect('parts', 'viewed', 'e', true), leader_protect('parent', 'viewed'),
	leader_protect('"Not ""here"" yet"', 'no such election');
TABLE leader_protected ORDER BY relation::text COLLATE "C";

-- Triggers that do not fire, or only sometimes
BEGIN;
ALTER TABLE plain DISABLE TRIGGER "~~leader_fence";
ALTER TABLE epochs DISABLE TRIGGER USER;
ALTER TABLE replicas DISABLE TRIGGER "~~leader_fence_truncate";
ALTER TABLE templates ENABLE REPLICA TRIGGER "~~leader_fence";
ALTER TABLE part1 DISABLE TRIGGER "~~leader_fence";
ALTER TABLE child ENABLE REPLICA TRIGGER "~~leader_fence_truncate";
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
ALTER TABLE replicas ENABLE TRIGGER "~~leader_fence_truncate";
ALTER TABLE part2d ENABLE TRIGGER "~~leader_fence";
ALTER TABLE epochs ENABLE ALWAYS TRIGGER "~~leader_fence";
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
ALTER TABLE replicas ENABLE TRIGGER "~~leader_fence";
SELECT relation, replica, in_force, problem FROM viewed WHERE relation = 'replicas'::regclass;
ROLLBACK;

-- Triggers that are not there
BEGIN;
DROP TRIGGER "~~leader_fence_truncate" ON epochs;
DROP TRIGGER "~~leader_fence" ON replicas;
DROP TRIGGER "~~leader_fence_truncate" ON part2d;
DROP TRIGGER "~~leader_fence" ON child;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
DROP TRIGGER "~~leader_fence" ON child;
DROP TRIGGER "~~leader_fence_truncate" ON child;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;

-- Detached; gone from the parent a child is protected by itself.
BEGIN;
ALTER TABLE parts DETACH PARTITION part2;
ALTER TABLE child NO INHERIT parent;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
SELECT relation, level, in_force FROM leader_protected WHERE relation = 'child'::regclass;
ROLLBACK;

-- Columns
BEGIN;
ALTER TABLE epochs DROP e;
ALTER TABLE replicas RENAME e TO other;
ALTER TABLE parts ALTER e TYPE int;
ALTER TABLE templates DROP v, ALTER e SET NOT NULL, ALTER e ADD GENERATED ALWAYS AS IDENTITY;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
ALTER TABLE templates RENAME v TO other;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
ALTER TABLE templates ALTER id TYPE numeric;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
BEGIN;
ALTER TABLE templates DROP v, DROP e, ADD v text GENERATED ALWAYS AS ('x') STORED, ADD e bigint GENERATED ALWAYS AS (1) STORED;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
-- Types that do as well
BEGIN;
ALTER TABLE templates ALTER id TYPE bigint, ALTER v TYPE varchar(10);
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;

-- A row trigger that could change what was judged, where that matters
CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END $$;
BEGIN;
CREATE TRIGGER "~~~other" BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~other" BEFORE UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~other" BEFORE INSERT ON templates FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~other" BEFORE INSERT ON part1 FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~other" BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION other();
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ALTER TRIGGER "~~~other" ON epochs RENAME TO other;
ALTER TABLE templates DISABLE TRIGGER "~~~other";
DROP TRIGGER "~~~other" ON part1;
CREATE TRIGGER "~~~after" AFTER UPDATE ON epochs FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~delete" BEFORE DELETE ON epochs FOR EACH ROW EXECUTE FUNCTION other();
CREATE TRIGGER "~~~statement" BEFORE UPDATE ON epochs FOR EACH STATEMENT EXECUTE FUNCTION other();
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;

-- New partitions and children would not be covered: matters where there are some.
BEGIN;
ALTER EVENT TRIGGER leader_election_cover DISABLE;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ALTER EVENT TRIGGER leader_election_cover ENABLE REPLICA;
SELECT relation, in_force FROM leader_protected WHERE NOT in_force ORDER BY relation::text COLLATE "C";
ALTER EVENT TRIGGER leader_election_cover ENABLE ALWAYS;
SELECT relation, in_force FROM leader_protected WHERE NOT in_force;
ALTER EXTENSION leader_election DROP EVENT TRIGGER leader_election_cover;
DROP EVENT TRIGGER leader_election_cover;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
ROLLBACK;
-- What came in meanwhile
BEGIN;
ALTER EVENT TRIGGER leader_election_cover DISABLE;
CREATE TABLE part3 PARTITION OF parts FOR VALUES IN (3);
CREATE TABLE child2 () INHERITS (parent);
CREATE TABLE grandchild () INHERITS (child);
CREATE TABLE above (id int, v int, e bigint);
ALTER TABLE plain INHERIT above;
ALTER TABLE epochs INHERIT above;
CREATE FOREIGN DATA WRAPPER regress_le_viewed_fdw;
CREATE SERVER regress_le_viewed_server FOREIGN DATA WRAPPER regress_le_viewed_fdw;
CREATE FOREIGN TABLE foreign_child () INHERITS (parent) SERVER regress_le_viewed_server;
ALTER EVENT TRIGGER leader_election_cover ENABLE;
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
-- Mended by protecting anew
DROP FOREIGN DATA WRAPPER regress_le_viewed_fdw CASCADE;
SELECT leader_unprotect('parts'), leader_protect('parts', 'viewed', 'e', true), leader_unprotect('parent'), leader_protect('parent', 'viewed'),
	leader_unprotect('plain'), leader_protect('plain', 'viewed');
SELECT relation, in_force, problem FROM viewed WHERE NOT in_force;
SELECT relation, level FROM leader_protected WHERE relation IN ('plain'::regclass, 'grandchild'::regclass);
ROLLBACK;
-- Made as a replica applies changes, when event triggers may not fire: covered, or told
BEGIN;
SET LOCAL session_replication_role = replica;
CREATE TABLE child3 () INHERITS (parent);
CREATE TABLE part4 PARTITION OF parts FOR VALUES IN (4);
SET LOCAL session_replication_role = origin;
SELECT m.member, (SELECT count(*) FROM pg_trigger WHERE tgrelid = m.member AND tgfoid = 'leader_fence_check'::regproc) = 2 OR NOT p.in_force AS covered_or_told
FROM leader_protected p JOIN (VALUES ('child3'::regclass, 'parent'::regclass), ('part4', 'parts')) AS m(member, parent) ON m.parent = p.relation
ORDER BY 1;
ROLLBACK;
-- Under another parent's rule
BEGIN;
CREATE TABLE stricter (id int, v int, e bigint);
SELECT leader_protect('stricter', 'viewed other', 'e');
ALTER EVENT TRIGGER leader_election_cover DISABLE;
ALTER TABLE epochs INHERIT stricter;
ALTER EVENT TRIGGER leader_election_cover ENABLE;
SELECT relation, in_force, problem IS NOT NULL AS told FROM leader_protected WHERE relation = 'stricter'::regclass;
ROLLBACK;

-- A fence that goes while one looks: the list and the table do not agree.
BEGIN;
UPDATE pg_class SET relhastriggers = false WHERE oid IN ('parent'::regclass, 'parts'::regclass, 'plain'::regclass);
SELECT relation FROM leader_protected WHERE in_force AND relation IN ('parent'::regclass, 'parts'::regclass, 'plain'::regclass);
ROLLBACK;
SELECT count(*) FILTER (WHERE NOT in_force) AS problems FROM leader_protected;

-- Switched off
SET leader_election.enforce = off;
SELECT relation, in_force, problem FROM viewed;
RESET leader_election.enforce;
SELECT count(*) FILTER (WHERE NOT in_force) AS problems FROM leader_protected;

-- Triggers of somebody's own making.  They count as far as they go, and those that
-- cannot be made sense of hide nobody else's table.
CREATE ROLE regress_le_viewer;
CREATE SCHEMA viewed_schema AUTHORIZATION regress_le_viewer;
SET ROLE regress_le_viewer;
CREATE TABLE viewed_schema.own (id int, v int, e bigint);
CREATE TRIGGER mine BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON viewed_schema.own
	FOR EACH STATEMENT EXECUTE FUNCTION leader_fence_check('viewed');
SELECT level, in_force FROM leader_protected WHERE relation = 'viewed_schema.own'::regclass;
CREATE FUNCTION pg_temp.own(events text, arguments text) RETURNS TABLE (rows bigint, in_force boolean, others_in_force boolean) LANGUAGE plpgsql AS $$
BEGIN
	DROP TRIGGER mine ON viewed_schema.own;
	EXECUTE format('CREATE TRIGGER mine %s EXECUTE FUNCTION leader_fence_check(%s)',
		replace(events, ' FOR EACH', ' ON viewed_schema.own FOR EACH'), arguments);
	RETURN QUERY SELECT count(*) FILTER (WHERE p.relation = 'viewed_schema.own'::regclass),
			bool_or(p.in_force) FILTER (WHERE p.relation = 'viewed_schema.own'::regclass),
			bool_and(p.in_force) FILTER (WHERE p.relation <> 'viewed_schema.own'::regclass)
		FROM leader_protected p;
EXCEPTION WHEN OTHERS THEN
	RAISE WARNING USING ERRCODE = SQLSTATE;
END $$;
SELECT events, left(arguments, 24) AS arguments, o.* FROM (VALUES
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''a{{b}}'''),
	('BEFORE INSERT OR UPDATE OR DELETE FOR EACH STATEMENT', '''viewed'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT WHEN (false)', '''viewed'''),
	('BEFORE INSERT OR UPDATE OF v OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''viewed'''),
	('AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''viewed'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''viewed'', ''e'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''{id}'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''viewed'', ''e'', ''more'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', ''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', ''''''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''a{'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', '''{nowhere}'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', 'E''a\nb'''),
	('BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT', quote_literal(repeat('x', 256))),
	('BEFORE INSERT OR UPDATE OR DELETE FOR EACH ROW', '''viewed'', ''nowhere'''),
	('BEFORE INSERT OR UPDATE OR DELETE FOR EACH ROW', '''viewed'', ''''')
	) AS t(events, arguments), LATERAL pg_temp.own(events, arguments) o;
RESET ROLE;
DROP SCHEMA viewed_schema CASCADE;
DROP FUNCTION pg_temp.own;

-- Anybody may look, and needs no right on the tables.
CREATE TABLE secret (id int);
REVOKE ALL ON secret FROM PUBLIC;
SELECT leader_protect('secret', 'viewed');
SET ROLE regress_le_viewer;
SELECT * FROM leader_protected WHERE relation = 'secret'::regclass;
RESET ROLE;
-- In a transaction that reads only
BEGIN READ ONLY;
SELECT count(*) FROM leader_protected;
COMMIT;
-- By whatever path, and with names that need quotes
SET search_path = '';
SELECT relation, in_force FROM public.leader_protected WHERE election = 'no such election';
RESET search_path;

DROP VIEW viewed;
DROP TABLE plain, epochs, replicas, templates, parts, parent, child, secret, "Not ""here"" yet";
DROP FUNCTION other;
DROP ROLE regress_le_viewer;
SELECT count(*) FROM leader_protected;
