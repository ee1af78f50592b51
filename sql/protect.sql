--
-- leader_protect() and leader_unprotect(): which relations can be protected, by
-- whom, and what then stands between a statement and the table.  Guards P2 where
-- tables carry no epoch, and that whatever cannot be covered is refused.  For
-- partitioned tables and inheritance see partitions.sql and inheritance.sql.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_owner, regress_le_other;
RESET client_min_messages;

CREATE ROLE regress_le_owner;
CREATE ROLE regress_le_other;
SELECT epoch AS current FROM leader_acquire('protect', 'a', '1 h') \gset
CREATE TABLE ledger (id int, amount int, fence_epoch bigint);

-- An ordinary table: one trigger for statements.
SELECT leader_protect('ledger', 'protect');
\d ledger
SELECT leader_protect('ledger', 'protect');
\echo :LAST_ERROR_SQLSTATE
SELECT leader_protect('ledger', 'protect other');
\echo :LAST_ERROR_SQLSTATE
SELECT leader_protect('ledger', 'protect', 'fence_epoch');
\echo :LAST_ERROR_SQLSTATE

-- Every statement is judged, also one that touches no row.
\set VERBOSITY sqlstate
INSERT INTO ledger VALUES (1, 1);
INSERT INTO ledger SELECT 1, 1 WHERE false;
UPDATE ledger SET amount = 2;
UPDATE ledger SET amount = 2 WHERE false;
DELETE FROM ledger;
DELETE FROM ledger WHERE id = 1;
TRUNCATE ledger;
COPY ledger FROM stdin;
1	1	\N
\.
COPY ledger FROM stdin;
\.
MERGE INTO ledger l USING (VALUES (1)) v (id) ON l.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1);
MERGE INTO ledger l USING (VALUES (1)) v (id) ON l.id = v.id WHEN MATCHED THEN UPDATE SET amount = 2;
MERGE INTO ledger l USING (VALUES (1)) v (id) ON l.id = v.id WHEN MATCHED THEN DELETE;
WITH w AS (INSERT INTO ledger VALUES (1, 1) RETURNING id) SELECT * FROM w;
WITH w AS (DELETE FROM ledger) SELECT 1;
SELECT * FROM ledger FOR UPDATE;
BEGIN;
SELECT leader_fence('protect', :current);
INSERT INTO ledger VALUES (1, 1), (2, 2), (3, 3);
UPDATE ledger SET amount = amount + 10;
DELETE FROM ledger WHERE id = 3;
COPY ledger FROM stdin;
4	4	\N
\.
MERGE INTO ledger l USING (VALUES (4), (5)) v (id) ON l.id = v.id
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id, 5);
COMMIT;
SELECT * FROM ledger ORDER BY id;

-- The owner of the table is judged like anybody else; a superuser too.
GRANT ALL ON ledger TO regress_le_other;
SET ROLE regress_le_other;
INSERT INTO ledger VALUES (6, 6);
RESET ROLE;
ALTER TABLE ledger OWNER TO regress_le_owner;
SET ROLE regress_le_owner;
INSERT INTO ledger VALUES (6, 6);
RESET ROLE;

-- Undone.
SELECT leader_unprotect('ledger');
\d ledger
INSERT INTO ledger VALUES (6, 6);
\set VERBOSITY default
SELECT leader_unprotect('ledger');
\echo :LAST_ERROR_SQLSTATE

-- With an epoch column: one trigger for rows, one for TRUNCATE.
SELECT leader_protect('ledger', 'protect', 'fence_epoch');
\d ledger
SELECT leader_protect('ledger', 'protect');
\echo :LAST_ERROR_SQLSTATE
SELECT leader_unprotect('ledger');
\d ledger

-- A trigger of the user's own making, with the same function, counts too.
CREATE TRIGGER mine BEFORE INSERT ON ledger FOR EACH STATEMENT EXECUTE FUNCTION leader_fence_check('protect');
SELECT leader_protect('ledger', 'protect');
\echo :LAST_ERROR_SQLSTATE
SELECT leader_unprotect('ledger');
-- A trigger that only has the name is in the way, and stays.
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$;
CREATE TRIGGER "~~leader_fence" BEFORE INSERT ON ledger FOR EACH STATEMENT EXECUTE FUNCTION nothing();
\set VERBOSITY sqlstate
SELECT leader_protect('ledger', 'protect');
\set VERBOSITY default
SELECT tgname, tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'ledger'::regclass;
DROP TRIGGER "~~leader_fence" ON ledger;

-- While changes are applied as a replica: by row, and by the row's epoch only.
SELECT leader_protect('ledger', 'protect', NULL, true);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT leader_protect('ledger', 'protect', 'fence_epoch', true);
\d ledger
SET session_replication_role = replica;
INSERT INTO ledger VALUES (7, 7, 1);
INSERT INTO ledger VALUES (7, 7, NULL);
INSERT INTO ledger VALUES (7, 7, :current);
RESET session_replication_role;
INSERT INTO ledger VALUES (8, 8, 1);
SELECT leader_unprotect('ledger');
-- Without that, as PostgreSQL has it for triggers, a replica's changes pass.
SELECT leader_protect('ledger', 'protect', 'fence_epoch', false);
SET session_replication_role = replica;
INSERT INTO ledger VALUES (9, 9, 1);
RESET session_replication_role;
INSERT INTO ledger VALUES (10, 10, 1);
SELECT leader_unprotect('ledger');
SELECT id, fence_epoch = :current AS current FROM ledger WHERE id >= 7 ORDER BY id;

-- What cannot be protected, and why.
\set VERBOSITY default
CREATE FUNCTION refused(relation text, epoch_column text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
BEGIN
	PERFORM leader_protect(relation::regclass, 'protect', epoch_column::name);
	PERFORM leader_unprotect(relation::regclass);
	RETURN 'PROTECTED';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN state || ' ' || message || coalesce(' / ' || nullif(detail, ''), '');
END $$;
CREATE VIEW v AS SELECT * FROM ledger;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM ledger;
CREATE FOREIGN DATA WRAPPER regress_le_fdw;
CREATE SERVER regress_le_server FOREIGN DATA WRAPPER regress_le_fdw;
CREATE FOREIGN TABLE ft (id int, fence_epoch bigint) SERVER regress_le_server;
CREATE SEQUENCE seq;
CREATE INDEX ledger_index ON ledger (id);
CREATE TYPE composite AS (id int, fence_epoch bigint);
CREATE TABLE partitioned (id int, fence_epoch bigint) PARTITION BY LIST (id);
CREATE TABLE partition PARTITION OF partitioned DEFAULT;
CREATE TABLE parent (id int, fence_epoch bigint);
CREATE TABLE child () INHERITS (parent);
SELECT r, refused(r)
FROM unnest('{v,mv,ft,seq,ledger_index,composite,partitioned,partition,parent,child}'::text[]) WITH ORDINALITY AS t(r, n)
ORDER BY n;
SELECT r, refused(r, 'fence_epoch')
FROM unnest('{v,mv,ft,seq,composite,partitioned,partition,parent,child}'::text[]) WITH ORDINALITY AS t(r, n)
ORDER BY n;
SELECT r, refused(r)
FROM unnest('{pg_class,pg_catalog.pg_authid,information_schema.tables,no_such_table}'::text[])
	WITH ORDINALITY AS t(r, n) ORDER BY n;
SELECT (regexp_match(refused(reltoastrelid::regclass::text), '^\d+'))[1] AS toast FROM pg_class WHERE relname = 'pg_proc' AND relkind = 'r';
SELECT left(refused('0'), 5) AS no_relation, left(refused('-'), 5) AS none;
-- Once a child is gone, each is a table like any other.
ALTER TABLE child NO INHERIT parent;
SELECT refused('parent'), refused('child');
DROP TABLE parent, child;
ALTER TABLE partitioned DETACH PARTITION partition;
SELECT refused('partition');

-- Columns.
CREATE TABLE columns (
	id int GENERATED BY DEFAULT AS IDENTITY,
	identity_always bigint,
	generated bigint GENERATED ALWAYS AS (42) STORED,
	small smallint,
	integer integer,
	big bigint,
	text text,
	number numeric,
	array_of bigint[],
	dropped bigint,
	"Odd Column" bigint,
	"Odd ""Quoted"" 'Column'" bigint NOT NULL DEFAULT 1);
ALTER TABLE columns DROP dropped;
CREATE DOMAIN epoch_domain AS bigint;
ALTER TABLE columns ADD domain epoch_domain;
ALTER TABLE columns ALTER id DROP IDENTITY;
ALTER TABLE columns ALTER identity_always SET NOT NULL;
ALTER TABLE columns ALTER identity_always ADD GENERATED ALWAYS AS IDENTITY;
SELECT c, refused('columns', c)
FROM unnest('{id,identity_always,generated,small,integer,text,number,array_of,domain,dropped,nowhere,"",ctid,xmin,tableoid,BIG,Odd column}'::text[])
	WITH ORDINALITY AS t(c, n) ORDER BY n;
ALTER TABLE columns ALTER identity_always SET GENERATED BY DEFAULT;
SELECT refused('columns', 'identity_always');
ALTER TABLE columns ALTER identity_always DROP IDENTITY;
SELECT leader_protect('columns', 'protect', 'Odd Column');
INSERT INTO columns (id, "Odd Column", identity_always) VALUES (1, :current, 1);
SELECT leader_unprotect('columns');
SELECT leader_protect('columns', 'protect', 'Odd "Quoted" ''Column''');
INSERT INTO columns (id, "Odd ""Quoted"" 'Column'", identity_always) VALUES (2, :current, 1);
\set VERBOSITY sqlstate
INSERT INTO columns (id, identity_always) VALUES (3, 1);
\set VERBOSITY default
SELECT leader_unprotect('columns');
SELECT id FROM columns;
-- Nothing of all this has left a trigger behind.
SELECT count(*) FROM pg_trigger WHERE tgrelid IN ('ledger'::regclass, 'columns'::regclass, 'partitioned'::regclass);

-- leader_unprotect() of what is not protected.
\set VERBOSITY sqlstate
SELECT leader_unprotect('ledger');
SELECT leader_unprotect('v');
SELECT leader_unprotect('pg_class');
SELECT leader_unprotect('no_such_table');
SELECT leader_unprotect(0);
\set VERBOSITY default

-- Tables of other kinds, and of odd names: of the table, its schema, the election.
CREATE UNLOGGED TABLE unlogged (id int);
CREATE TEMP TABLE temporary (id int);
CREATE SCHEMA "Odd ""Schema"" 'x'";
CREATE TABLE "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\" (id int, "e""'\" bigint);
SELECT epoch AS odd FROM leader_acquire('odd ''"\$$ election', 'a', '1 h') \gset
SELECT leader_protect('unlogged', 'protect'), leader_protect('temporary', 'protect');
SELECT leader_protect('"Odd ""Schema"" ''x''"."Odd. ""Table"" $$''x''\"', 'odd ''"\$$ election', 'e"''\');
\d "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\"
\set VERBOSITY sqlstate
INSERT INTO unlogged VALUES (1);
INSERT INTO temporary VALUES (1);
INSERT INTO "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\" VALUES (1, 1);
INSERT INTO "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\" VALUES (1, NULL);
BEGIN;
SELECT leader_fence('protect', :current), leader_fence('odd ''"\$$ election', :odd);
INSERT INTO unlogged VALUES (1);
INSERT INTO temporary VALUES (1);
INSERT INTO "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\" VALUES (1, NULL);
COMMIT;
SELECT id, "e""'\" = :odd AS stamped FROM "Odd ""Schema"" 'x'"."Odd. ""Table"" $$'x'\";
SELECT leader_unprotect('unlogged'), leader_unprotect('temporary'), leader_unprotect('"Odd ""Schema"" ''x''"."Odd. ""Table"" $$''x''\"');
\set VERBOSITY default

-- It belongs to the table: renamed, moved, and rolled back with its transaction.
SELECT leader_protect('ledger', 'protect');
ALTER TABLE ledger RENAME TO book;
ALTER TABLE book SET SCHEMA "Odd ""Schema"" 'x'";
\set VERBOSITY sqlstate
INSERT INTO "Odd ""Schema"" 'x'".book VALUES (1);
SELECT leader_unprotect('"Odd ""Schema"" ''x''".book');
ALTER TABLE "Odd ""Schema"" 'x'".book SET SCHEMA public;
ALTER TABLE book RENAME TO ledger;
BEGIN;
SELECT leader_protect('ledger', 'protect');
INSERT INTO ledger VALUES (20);
ROLLBACK;
INSERT INTO ledger VALUES (20);
BEGIN;
SELECT leader_protect('ledger', 'protect');
SELECT leader_unprotect('ledger');
INSERT INTO ledger VALUES (21);
COMMIT;
-- A protected table that has got a child since is unprotected together with it.
SELECT leader_protect('ledger', 'protect');
CREATE TABLE later () INHERITS (ledger);
SELECT leader_unprotect('later');
SELECT leader_unprotect('ledger');
INSERT INTO later VALUES (22);
DROP TABLE later;
-- LIKE copies no trigger.
SELECT leader_protect('ledger', 'protect', 'fence_epoch');
CREATE TABLE copied (LIKE ledger INCLUDING ALL);
INSERT INTO copied VALUES (1);
DROP TABLE copied;
SELECT leader_unprotect('ledger');

-- An election that does not exist yet can protect a table: closed until someone
-- has won it.
SELECT leader_protect('ledger', 'protect later');
INSERT INTO ledger VALUES (30);
SET leader_election.fence = 'protect later=1';
SET leader_election.fence = '"protect later"=1';
INSERT INTO ledger VALUES (30);
RESET leader_election.fence;
SELECT epoch AS later FROM leader_acquire('protect later', 'a', '1 h') \gset
BEGIN;
SELECT leader_fence('protect later', :later);
INSERT INTO ledger VALUES (30);
COMMIT;
SELECT leader_unprotect('ledger');

-- Whoever is not the table's owner may do neither; who is, needs membership in
-- the election's owner as well, if the election exists.
GRANT ALL ON ledger TO regress_le_other;
SET ROLE regress_le_other;
SELECT leader_protect('ledger', 'protect');
SELECT leader_unprotect('ledger');
RESET ROLE;
SET ROLE regress_le_owner;
SELECT leader_protect('ledger', 'protect');
SELECT leader_protect('ledger', 'protect unknown');
SELECT leader_unprotect('ledger');
SELECT epoch AS own FROM leader_acquire('protect own', 'a', '1 h') \gset
SELECT leader_protect('ledger', 'protect own');
SELECT leader_fence('protect own', :own);
INSERT INTO ledger VALUES (40);
RESET ROLE;
SET ROLE regress_le_other;
SELECT leader_unprotect('ledger');
RESET ROLE;
GRANT regress_le_owner TO regress_le_other;
SET ROLE regress_le_other;
SELECT leader_unprotect('ledger');
SELECT leader_protect('ledger', 'protect own');
SELECT leader_unprotect('ledger');
RESET ROLE;

-- The extension's own tables
SELECT relation, refused(relation) FROM unnest('{leader_election_state,leader_election_history}'::text[]) relation;

DROP FUNCTION refused, nothing;
DROP VIEW v;
DROP MATERIALIZED VIEW mv;
DROP FOREIGN DATA WRAPPER regress_le_fdw CASCADE;
DROP TABLE ledger, partitioned, partition, columns, unlogged, temporary;
DROP SEQUENCE seq;
DROP TYPE composite;
DROP DOMAIN epoch_domain;
DROP SCHEMA "Odd ""Schema"" 'x'" CASCADE;
DROP ROLE regress_le_owner, regress_le_other;
