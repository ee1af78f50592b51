--
-- The extension in a schema that is on nobody's search_path, moved to another,
-- dropped and created again; and hostile objects of the same names.  Guards that
-- everything is found by what it is, never by the caller's search_path, and P1
-- across DROP and CREATE EXTENSION.
--
SELECT current_database() AS home \gset
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regression_le_schema;
DROP ROLE IF EXISTS regress_le_user;
CREATE DATABASE regression_le_schema;
\c regression_le_schema
SET client_min_messages = warning;
CREATE SCHEMA "Odd Schema";
CREATE EXTENSION leader_election SCHEMA "Odd Schema";
CREATE ROLE regress_le_user;
GRANT USAGE ON SCHEMA "Odd Schema" TO regress_le_user;
CREATE SCHEMA app;
CREATE TABLE app.ledger (id int PRIMARY KEY, fence_epoch bigint);
CREATE TABLE app.book (id int);
GRANT ALL ON SCHEMA app TO regress_le_user;
GRANT ALL ON app.ledger, app.book TO regress_le_user;

-- Everything works with an empty search_path.
SET search_path = '';
SELECT epoch AS e1 FROM "Odd Schema".leader_acquire('schema', 'a', '1 h', metadata => '{"m": 1}') \gset
SELECT is_leader FROM "Odd Schema".leader_renew('schema', :e1);
SELECT election FROM "Odd Schema".leader_renew_all('a');
SELECT "Odd Schema".leader_check('schema', :e1);
SELECT "Odd Schema".leader_set_metadata('schema', :e1, '{"m": 2}');
SELECT election, leader, state, metadata FROM "Odd Schema".leader_status;
SELECT "Odd Schema".leader_protect('app.ledger', 'schema', 'fence_epoch'), "Odd Schema".leader_protect('app.book', 'schema');
\d app.book
\set VERBOSITY sqlstate
INSERT INTO app.ledger VALUES (1, NULL);
INSERT INTO app.book VALUES (1);
BEGIN;
SELECT "Odd Schema".leader_fence('schema', :e1);
INSERT INTO app.ledger VALUES (1, NULL);
INSERT INTO app.book VALUES (1);
COMMIT;
SELECT "Odd Schema".leader_release('schema', :e1);
SELECT epoch AS e1, epoch > :e1 AS grows FROM "Odd Schema".leader_acquire('schema', 'b', '1 h') \gset
SELECT :'grows';
INSERT INTO app.ledger VALUES (2, :e1);
RESET search_path;

-- With the application's schema only.
SET search_path = app;
SELECT "Odd Schema".leader_unprotect('book');
SELECT "Odd Schema".leader_protect('book', 'schema');
INSERT INTO book VALUES (2);
SELECT set_config('leader_election.fence', 'schema=' || :e1, false) <> '' AS set;
INSERT INTO book VALUES (2);
RESET leader_election.fence;
RESET search_path;

-- Objects of the same names in pg_temp and in front on the search_path, made by
-- somebody without rights.
SET ROLE regress_le_user;
CREATE TEMP TABLE leader_election_state (election text PRIMARY KEY, owner name, kind "char", ttl bigint,
	terms bigint, epoch bigint, acquired_at timestamptz, holder text);
INSERT INTO leader_election_state VALUES ('schema', 'regress_le_user', 'l', 1000000, 1, 1, now(), 'me');
CREATE TEMP TABLE leader_election_metadata (election text PRIMARY KEY, epoch bigint, metadata jsonb);
INSERT INTO leader_election_metadata VALUES ('schema', :e1, '{"hostile": 1}');
CREATE TEMP SEQUENCE leader_election_epoch MINVALUE 0;
CREATE TEMP SEQUENCE leader_election_epoch_identity MINVALUE 0;
CREATE TEMP SEQUENCE leader_election_epoch_drawn_at MINVALUE 0;
CREATE FUNCTION app.leader_fence_check() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END $$;
CREATE FUNCTION app.leader_check(text, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION app.hostile_eq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR app.= (LEFTARG = text, RIGHTARG = text, FUNCTION = app.hostile_eq);
SET search_path = pg_temp, app, pg_catalog;
SELECT is_leader FROM "Odd Schema".leader_renew('schema', 1);
SELECT "Odd Schema".leader_fence('schema', 1);
INSERT INTO app.ledger VALUES (3, 1);
SELECT is_leader, epoch > :e1 AS grows FROM "Odd Schema".leader_acquire('schema hostile', 'me', '1 h');
SELECT election, leader, metadata FROM "Odd Schema".leader_status ORDER BY election COLLATE "C";
RESET ROLE;
SELECT is_leader, epoch OPERATOR(pg_catalog.=) :e1 AS same FROM "Odd Schema".leader_acquire('schema', 'b', '1 h');
SELECT election, leader, metadata FROM "Odd Schema".leader_status ORDER BY election COLLATE "C";
CREATE TABLE app.hostile (id int);
SELECT "Odd Schema".leader_protect('app.hostile', 'schema');
SELECT tgfoid = '"Odd Schema".leader_fence_check'::regproc AS ours FROM pg_trigger WHERE tgrelid = 'app.hostile'::regclass;
INSERT INTO app.hostile VALUES (1);
SELECT "Odd Schema".leader_unprotect('app.hostile');
RESET search_path;
DROP TABLE app.hostile;
DROP OPERATOR app.= (text, text);
DROP FUNCTION app.leader_fence_check, app.leader_check, app.hostile_eq;
DISCARD TEMP;

-- Moved to another schema in mid-session, with plans and triggers in use.
CREATE SCHEMA "New Schema";
SET search_path = "New Schema", "Odd Schema";
PREPARE prepared_check AS SELECT leader_check('schema', $1);
EXECUTE prepared_check(:e1);
ALTER EXTENSION leader_election SET SCHEMA "New Schema";
SELECT extnamespace::regnamespace FROM pg_extension WHERE extname = 'leader_election';
EXECUTE prepared_check(:e1);
SELECT is_leader, epoch = :e1 AS same FROM leader_acquire('schema', 'b', '1 h');
SELECT leader_check('schema', :e1);
SELECT leader_fence('schema', :e1);
INSERT INTO app.ledger VALUES (4, NULL);
INSERT INTO app.ledger VALUES (4, :e1);
INSERT INTO app.book VALUES (4);
SELECT leader_unprotect('app.book');
SELECT leader_protect('app.book', 'schema');
INSERT INTO app.book VALUES (4);
SELECT is_leader, epoch > :e1 AS grows FROM leader_acquire('schema moved', 'a', '1 h');
-- The schema renamed.
ALTER SCHEMA "New Schema" RENAME TO "Newer Schema";
ALTER SCHEMA "Odd Schema" RENAME TO "Odder Schema";
SET search_path = "Newer Schema", "Odder Schema";
SELECT is_leader, epoch = :e1 AS same FROM leader_acquire('schema', 'b', '1 h');
INSERT INTO app.ledger VALUES (5, :e1);
INSERT INTO app.book VALUES (5);
-- A fresh session.
\c -
SET client_min_messages = warning;
SET search_path = "Newer Schema", "Odder Schema";
SELECT is_leader, epoch = :e1 AS same FROM leader_acquire('schema', 'b', '1 h');
INSERT INTO app.book VALUES (6);
SELECT id FROM app.ledger ORDER BY id;
SELECT id FROM app.book ORDER BY id;

-- Not dropped while a table is protected.
DROP EXTENSION leader_election;
SELECT leader_check('schema', :e1);
-- Neither are its parts.
DROP TABLE leader_election_state;
DROP SEQUENCE leader_election_epoch;
DROP FUNCTION leader_fence_check;
DROP VIEW leader_status;
SELECT leader_unprotect('app.ledger'), leader_unprotect('app.book');
BEGIN;
DROP EXTENSION leader_election;
ROLLBACK;
SELECT leader_check('schema', :e1);
SELECT is_leader FROM leader_acquire('schema moved', 'b', '1 h');

-- Dropped and created again: nobody leads, and epochs grow (P1).
SELECT max(epoch) AS highest FROM leader_status \gset
DROP EXTENSION leader_election;
SELECT to_regclass('leader_election_state') IS NULL AND to_regproc('leader_acquire') IS NULL AS gone;
RESET search_path;
CREATE EXTENSION leader_election;
SELECT count(*) FROM leader_status;
SELECT leader_check('schema', :e1);
SELECT is_leader FROM leader_renew('schema', :e1);
SELECT count(*) FROM leader_renew_all('b');
SELECT leader_fence('schema', :e1);
SELECT epoch AS e2, epoch > :highest AS grows FROM leader_acquire('schema', 'c', '1 h') \gset
SELECT :'grows';
SELECT leader_check('schema', :e2), leader_check('schema', :e1);
SELECT leader_fence('schema', :e1);
SELECT count(DISTINCT epoch), min(epoch) > :e2 AS grow FROM generate_series(1, 20) n, leader_acquire('schema ' || n, 'c', '1 h');

-- The same many times in one session.
CREATE PROCEDURE recreate() LANGUAGE plpgsql AS $$
DECLARE
	last bigint := (SELECT max(epoch) FROM leader_status);
	a record;
BEGIN
	FOR i IN 1..10 LOOP
		DROP EXTENSION leader_election;
		CREATE EXTENSION leader_election;
		COMMIT;
		SELECT * INTO a FROM leader_acquire('schema', 'c', '1 h');
		IF NOT a.is_leader OR a.epoch <= last OR NOT leader_check('schema', a.epoch) OR leader_check('schema', last) THEN
			RAISE EXCEPTION 'round %', i;
		END IF;
		last := a.epoch;
		COMMIT;
	END LOOP;
END $$;
CALL recreate();
-- Created, used and rolled back in one transaction.
DROP EXTENSION leader_election;
BEGIN;
CREATE EXTENSION leader_election SCHEMA app;
SELECT epoch AS e3, is_leader FROM app.leader_acquire('schema', 'd', '1 h') \gset
SELECT app.leader_check('schema', :e3), :e3 > :e2 AS grows;
ROLLBACK;
SELECT app.leader_check('schema', :e3);
CREATE EXTENSION leader_election;
SELECT leader_check('schema', :e3);
SELECT is_leader, epoch > :e3 AS grows FROM leader_acquire('schema', 'e', '1 h');

-- Somebody's objects in the way of CREATE EXTENSION are neither used nor kept.
DROP EXTENSION leader_election;
CREATE TABLE leader_election_state (election text);
CREATE EXTENSION leader_election;
SELECT count(*) FROM pg_extension WHERE extname = 'leader_election';
DROP TABLE leader_election_state;
CREATE FUNCTION leader_check(election text, epoch bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE EXTENSION leader_election;
DROP FUNCTION leader_check;
CREATE EXTENSION leader_election;

-- Another database is another world, but epochs are drawn from one floor.
SELECT epoch AS here FROM leader_acquire('schema', 'x', '1 h') \gset
\c :home
SELECT leader_check('schema', :here);
SELECT count(*) FROM leader_renew_all('x') WHERE election = 'schema';
SELECT is_leader, epoch > :here AS grows FROM leader_acquire('schema', 'y', '1 h');
DROP DATABASE regression_le_schema;
DROP ROLE regress_le_user;
