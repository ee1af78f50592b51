--
-- The extension dropped, moved and created again while tables are protected and
-- terms are led.  Guards that a protected table never loses its fence by the way,
-- that sessions which have used the extension notice, and P1.  schema.sql has the
-- same in one session and in odd schemas.
--
SELECT current_database() AS home \gset
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regression_le_drop;
DROP ROLE IF EXISTS regress_le_dropper;
CREATE DATABASE regression_le_drop;
\c regression_le_drop
SET client_min_messages = warning;
CREATE ROLE regress_le_dropper;
CREATE SCHEMA le;
CREATE EXTENSION leader_election SCHEMA le;
GRANT USAGE ON SCHEMA le TO regress_le_dropper;
CREATE SCHEMA app AUTHORIZATION regress_le_dropper;
SET ROLE regress_le_dropper;
CREATE TABLE app.plain (id int);
CREATE TABLE app.by_row (id int, fence_epoch bigint);
CREATE TABLE app.replica (id int, fence_epoch bigint);
CREATE VIEW app.led AS SELECT election, leader FROM le.leader_status;
CREATE FUNCTION app.leads(bigint) RETURNS boolean LANGUAGE sql AS $$SELECT le.leader_check('drop', $1)$$;
CREATE FUNCTION app.leads_too(bigint) RETURNS boolean LANGUAGE sql BEGIN ATOMIC SELECT le.leader_check('drop', $1); END;
SELECT epoch AS e1 FROM le.leader_acquire('drop', 'a', '1 h') \gset
SELECT le.leader_protect('app.plain', 'drop'), le.leader_protect('app.by_row', 'drop', 'fence_epoch'),
       le.leader_protect('app.replica', 'drop', 'fence_epoch', true);
INSERT INTO app.by_row VALUES (1, :e1);
INSERT INTO app.replica VALUES (1, :e1);
RESET ROLE;

-- Refused, with a list of what depends on it: every fence, and whatever else uses
-- the extension.  Nothing has happened then.
DROP EXTENSION leader_election;
\echo :LAST_ERROR_SQLSTATE
DROP EXTENSION leader_election RESTRICT;
DROP SCHEMA le;
\echo :LAST_ERROR_SQLSTATE
SELECT le.leader_check('drop', :e1), app.leads(:e1), app.leads_too(:e1);
\set VERBOSITY sqlstate
INSERT INTO app.plain VALUES (1);
INSERT INTO app.by_row VALUES (2, NULL);
INSERT INTO app.replica VALUES (2, NULL);

-- The parts cannot be dropped one by one, with CASCADE neither, nor taken over.
DROP FUNCTION le.leader_fence_check() CASCADE;
DROP TABLE le.leader_election_state CASCADE;
DROP TABLE le.leader_election_history, le.leader_election_metadata CASCADE;
DROP SEQUENCE le.leader_election_epoch, le.leader_election_epoch_identity, le.leader_election_epoch_drawn_at CASCADE;
DROP TYPE le.leader_answer CASCADE;
DROP VIEW le.leader_status, le.leader_term CASCADE;
-- By whoever does not own it, the extension cannot be dropped or moved.
SET ROLE regress_le_dropper;
DROP EXTENSION leader_election CASCADE;
ALTER EXTENSION leader_election SET SCHEMA app;
RESET ROLE;
\set VERBOSITY default
SELECT count(*) FROM pg_trigger WHERE tgfoid = 'le.leader_fence_check'::regproc;

-- What is not protected any more does not hinder.
SELECT le.leader_unprotect('app.plain'), le.leader_unprotect('app.replica');
DROP EXTENSION leader_election;
SELECT le.leader_protect('app.plain', 'drop'), le.leader_protect('app.replica', 'drop', 'fence_epoch', true);

-- Moved: the triggers, plans, views and functions of this session, which have been
-- used, and the terms in memory, which go on under their epochs.
CREATE SCHEMA moved;
GRANT USAGE ON SCHEMA moved TO regress_le_dropper;
PREPARE old_name AS SELECT le.leader_check('drop', $1);
EXECUTE old_name(:e1);
SELECT epoch AS s1 FROM le.leader_acquire_session('drop session', 'a') \gset
ALTER EXTENSION leader_election SET SCHEMA moved;
\set VERBOSITY sqlstate
SELECT le.leader_check('drop', :e1);
SELECT app.leads(:e1);
EXECUTE old_name(:e1);
\set VERBOSITY default
SELECT app.leads_too(:e1);
SELECT * FROM app.led ORDER BY election;
SELECT is_leader, epoch = :e1 AS same FROM moved.leader_renew('drop', :e1);
SELECT is_leader, epoch = :e1 AS same FROM moved.leader_acquire('drop', 'a', '1 h');
SELECT is_leader, leader FROM moved.leader_acquire('drop', 'b', '1 h');
SELECT moved.leader_check('drop session', :s1);
SELECT is_leader, epoch = :s1 AS same FROM moved.leader_acquire_session('drop session', 'a');
SELECT tgname, tgrelid::regclass, tgenabled, tgfoid::regproc FROM pg_trigger WHERE tgname LIKE '~~%' ORDER BY 2, 1;
CREATE FUNCTION writes(token text) RETURNS TABLE (statement text, state text) LANGUAGE plpgsql AS $$
DECLARE
	s text;
BEGIN
	PERFORM set_config('leader_election.fence', token, true);
	FOREACH s IN ARRAY ARRAY[
		'INSERT INTO app.plain VALUES (10)', 'TRUNCATE app.plain',
		'UPDATE app.by_row SET id = id', 'DELETE FROM app.by_row', 'INSERT INTO app.by_row VALUES (10, NULL)',
		'UPDATE app.replica SET id = id', 'DELETE FROM app.replica', 'INSERT INTO app.replica VALUES (10, NULL)']
	LOOP
		statement := s;
		BEGIN
			EXECUTE s;
			state := 'done';
		EXCEPTION WHEN OTHERS THEN
			state := SQLSTATE;
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM writes('');
SELECT * FROM writes('drop=' || :e1);
-- A table that was protected before is unprotected and protected now.
SELECT moved.leader_unprotect('app.plain');
SELECT moved.leader_protect('app.plain', 'drop');
-- In one transaction with a use before and after.
BEGIN;
SELECT moved.leader_fence('drop', :e1);
INSERT INTO app.plain VALUES (20);
ALTER EXTENSION leader_election SET SCHEMA le;
INSERT INTO app.plain VALUES (21);
SELECT le.leader_check('drop', :e1);
COMMIT;
SELECT * FROM app.plain ORDER BY id;
BEGIN;
ALTER EXTENSION leader_election SET SCHEMA moved;
SELECT moved.leader_check('drop', :e1);
ROLLBACK;
SELECT le.leader_check('drop', :e1);
SELECT is_leader FROM le.leader_renew('drop', :e1);

-- With CASCADE the fences go and the data stays.
SELECT max(epoch) AS highest FROM le.leader_status \gset
DROP EXTENSION leader_election CASCADE;
SELECT count(*) FROM pg_trigger WHERE tgrelid IN ('app.plain'::regclass, 'app.by_row'::regclass, 'app.replica'::regclass);
SELECT 'plain' AS table, count(*) FROM app.plain
UNION ALL SELECT 'by_row', count(*) FROM app.by_row
UNION ALL SELECT 'replica', count(*) FROM app.replica ORDER BY 1;
SELECT fence_epoch = :e1 AS same FROM app.by_row;
SELECT to_regclass('app.led') IS NULL AS view_gone, to_regproc('app.leads_too') IS NULL AS function_gone;
SELECT count(*) FROM pg_class WHERE relname LIKE 'leader%';
SELECT count(*) FROM pg_proc WHERE proname LIKE 'leader%';
SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'leader%';
INSERT INTO app.plain VALUES (30);
UPDATE app.by_row SET id = 31;
TRUNCATE app.replica;
\set VERBOSITY sqlstate
EXECUTE old_name(:e1);
SELECT app.leads(:e1);
\set VERBOSITY default

-- Created again: nothing of the old terms is known, and epochs go on.
CREATE EXTENSION leader_election SCHEMA le;
SELECT count(*) FROM le.leader_status;
SELECT count(*) FROM le.leader_term;
SELECT le.leader_check('drop', :e1), le.leader_check('drop session', :s1), app.leads(:e1);
SELECT is_leader FROM le.leader_renew('drop', :e1);
SELECT count(*) FROM le.leader_renew_all('a');
SELECT le.leader_release('drop', :e1), le.leader_release('drop session', :s1);
SELECT is_leader, epoch > :highest AS grows, epoch AS e2 FROM le.leader_acquire('drop', 'b', '1 h') \gset
SELECT :'is_leader', :'grows';
SELECT is_leader, epoch > :e2 AS grows FROM le.leader_acquire_session('drop session', 'b');
-- The data that stayed is fenced by the new terms.
SELECT le.leader_protect('app.by_row', 'drop', 'fence_epoch');
\set VERBOSITY sqlstate
UPDATE app.by_row SET id = 40;
UPDATE app.by_row SET id = 40, fence_epoch = :e1 - 1;
UPDATE app.by_row SET id = 40, fence_epoch = :e2;
\set VERBOSITY default
SELECT id, fence_epoch = :e2 AS stamped FROM app.by_row;

-- What a rolled back DROP leaves is what was there, memory included.
BEGIN;
DROP EXTENSION leader_election CASCADE;
UPDATE app.by_row SET id = 41;
ROLLBACK;
SELECT le.leader_check('drop', :e2);
SELECT is_leader, epoch = :e2 AS same FROM le.leader_acquire('drop', 'b', '1 h');
SELECT is_leader, leader FROM le.leader_acquire('drop', 'c', '1 h');
\set VERBOSITY sqlstate
UPDATE app.by_row SET id = 42;
\set VERBOSITY default
SELECT id FROM app.by_row;

-- A fenced transaction that drops the extension has nothing left to be judged by.
BEGIN;
SELECT le.leader_fence('drop', :e2);
DROP EXTENSION leader_election CASCADE;
UPDATE app.by_row SET id = 43;
COMMIT;
SELECT id FROM app.by_row;
SELECT le.leader_check('drop', :e2);

-- The schema dropped, and with it the extension and the fences, not the data.
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.by_row'::regclass;
DROP SCHEMA le CASCADE;
SELECT count(*) FROM pg_extension WHERE extname = 'leader_election';
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.by_row'::regclass;
SELECT count(*) FROM app.by_row;
CREATE EXTENSION leader_election;
SELECT is_leader, epoch > :e2 AS grows, epoch AS e3 FROM leader_acquire('drop', 'd', '1 h') \gset
SELECT :'is_leader', :'grows';

-- The table dropped, with its fences.
SELECT leader_protect('app.plain', 'drop');
DROP TABLE app.plain;
DROP SCHEMA app CASCADE;
DROP EXTENSION leader_election;

-- The database dropped while terms are led in it; another of the same name knows
-- nothing of them.
CREATE EXTENSION leader_election;
SELECT epoch AS e4, epoch > :e3 AS grows FROM leader_acquire('drop', 'e', '1 h') \gset
SELECT :'grows';
SELECT is_leader FROM leader_acquire_session('drop session', 'e');
\c :home
SET client_min_messages = warning;
DROP DATABASE regression_le_drop;
CREATE DATABASE regression_le_drop;
\c regression_le_drop
SET client_min_messages = warning;
CREATE EXTENSION leader_election;
SELECT count(*) FROM leader_status;
SELECT leader_check('drop', :e4);
SELECT is_leader, leader, epoch > :e4 AS grows FROM leader_acquire('drop', 'f', '1 h');
SELECT is_leader, leader, epoch > :e4 AS grows FROM leader_acquire_session('drop session', 'f');
\c :home
DROP DATABASE regression_le_drop;
DROP ROLE regress_le_dropper;
