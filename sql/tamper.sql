--
-- The extension's own tables and sequences emptied, changed and altered by a
-- superuser, and the extension dropped while it is in use.  Guards P1: the answer
-- is an honest new term with a higher epoch or an error that says what is wrong,
-- never an epoch that was somebody else's, and never an internal error.
--
SELECT current_database() AS home \gset
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP DATABASE IF EXISTS regression_le_tamper;
CREATE DATABASE regression_le_tamper;
\c regression_le_tamper
SET client_min_messages = warning;
CREATE EXTENSION leader_election;
CREATE TABLE ledger (id int);

-- How every kind of call ends.  "tamper" is led by "a" with the given epoch, the
-- highest so far, and "tamper free" was given back.
CREATE FUNCTION all_calls(e bigint, OUT call text, OUT outcome text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	command text;
	bid text := $b$CASE WHEN epoch > @ THEN 'leader, higher epoch' WHEN epoch = @ THEN 'leader, same epoch'
		WHEN is_leader THEN 'leader, LOWER EPOCH' ELSE 'not leader' END$b$;
BEGIN
	FOR call, command IN VALUES
		('check', $c$leader_check('tamper', @)$c$),
		('renew', $c$is_leader FROM leader_renew('tamper', @)$c$),
		('renew all', $c$count(*) FROM leader_renew_all('a')$c$),
		('fence', $c$leader_fence('tamper', @)$c$),
		('write', $c$put(1)$c$),
		('set metadata', $c$leader_set_metadata('tamper', @, '{}')$c$),
		('status', $c$count(*) FROM leader_status$c$),
		('acquire', bid || $c$ FROM leader_acquire('tamper', 'b', '1 h')$c$),
		('acquire free', bid || $c$ FROM leader_acquire('tamper free', 'b', '1 h')$c$),
		('release', $c$leader_release('tamper', @)$c$)
	LOOP
		BEGIN
			EXECUTE 'SELECT ' || replace(command, '@', e::text) INTO outcome;
			outcome := coalesce(nullif(outcome, ''), 'fine');
		EXCEPTION WHEN OTHERS THEN
			outcome := SQLSTATE || ' ' || replace(SQLERRM, e::text, '@');
		END;
		-- It reads the rows only in the first day of the server's life.
		IF call = 'renew all' AND outcome ~ '^(1$|55000)' THEN
			outcome := 'fine';
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;
CREATE FUNCTION put(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO ledger VALUES (n)';

-- A new installation, with the triggers disabled that keep a superuser from
-- changing rows.  No epoch comes that is not higher than all that were granted
-- before.
CREATE TABLE granted (epoch bigint);
CREATE FUNCTION fresh() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	DROP EXTENSION leader_election CASCADE;
	CREATE EXTENSION leader_election;
	FOR election IN 1..2 LOOP
		SELECT * INTO a FROM leader_acquire(CASE election WHEN 1 THEN 'tamper free' ELSE 'tamper' END, 'a', '1 h');
		IF NOT a.is_leader OR a.epoch <= (SELECT max(g.epoch) FROM granted g) THEN
			RAISE EXCEPTION 'epoch % after %', a.epoch, (SELECT max(g.epoch) FROM granted g);
		END IF;
		INSERT INTO granted VALUES (a.epoch);
		IF election = 1 THEN
			PERFORM leader_release('tamper free', a.epoch);
		END IF;
	END LOOP;
	PERFORM leader_protect('ledger', 'tamper');
	ALTER TABLE leader_election_state DISABLE TRIGGER leader_election_guard;
	ALTER TABLE leader_election_metadata DISABLE TRIGGER leader_election_guard;
	PERFORM set_config('leader_election.fence', 'tamper=' || a.epoch, false);
	RETURN a.epoch;
END $$;

-- Untouched, to compare with.
SELECT fresh() AS e \gset
SELECT * FROM all_calls(:e);

-- Rows are not changed by hand: leadership would go on in memory.  Only inserting
-- is free, as a dump has to be restored.
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state ENABLE TRIGGER leader_election_guard;
ALTER TABLE leader_election_metadata ENABLE TRIGGER leader_election_guard;
DELETE FROM leader_election_state;
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
UPDATE leader_election_state SET holder = NULL;
UPDATE leader_election_state SET epoch = 1 WHERE false;
TRUNCATE leader_election_state;
TRUNCATE leader_election_state CASCADE;
DELETE FROM leader_election_metadata;
UPDATE leader_election_metadata SET metadata = NULL;
TRUNCATE leader_election_metadata, leader_election_state;
MERGE INTO leader_election_state s USING (VALUES ('tamper')) v (e) ON s.election = v.e WHEN MATCHED THEN DELETE;
INSERT INTO leader_election_state SELECT * FROM leader_election_state ON CONFLICT (election) DO UPDATE SET epoch = 1;
\set VERBOSITY default
SELECT * FROM all_calls(:e);
COPY leader_election_state (election, epoch, terms, acquired_at, ttl, kind, owner, holder) FROM stdin;
tamper copied	7	1	2026-01-01 00:00:00+00	1000000	l	regress_le_nobody	x
\.
SELECT is_leader, epoch > :e AS grows FROM leader_acquire('tamper copied', 'b', '1 h', '10 s');

-- Changed all the same.  Rows deleted, all rows of both tables.
SELECT fresh() AS e \gset
DELETE FROM leader_election_state;
SELECT * FROM all_calls(:e) WHERE call IN ('fence', 'write', 'status', 'acquire free');
SELECT fresh() AS e \gset
TRUNCATE leader_election_state, leader_election_metadata;
SELECT * FROM all_calls(:e) WHERE call IN ('fence', 'write', 'status', 'acquire free');

-- Sequences restarted, set back, set ahead, together with the rows.
SELECT fresh() AS e \gset
ALTER SEQUENCE leader_election_epoch RESTART;
SELECT * FROM all_calls(:e) WHERE call LIKE 'acquire%';
SELECT fresh() AS e \gset
SELECT setval('leader_election_epoch', 1), setval('leader_election_epoch_identity', 1), setval('leader_election_epoch_drawn_at', 1);
SELECT * FROM all_calls(:e) WHERE call LIKE 'acquire%';
SELECT fresh() AS e \gset
ALTER SEQUENCE leader_election_epoch RESTART;
ALTER SEQUENCE leader_election_epoch_identity RESTART;
ALTER SEQUENCE leader_election_epoch_drawn_at RESTART;
DELETE FROM leader_election_state WHERE election = 'tamper free';
SELECT * FROM all_calls(:e) WHERE call LIKE 'acquire%';
SELECT fresh() AS e \gset
SELECT setval('leader_election_epoch', :e + 1000000000) > 0 AS ahead;
SELECT is_leader, epoch > :e + 1000000000 AS grows FROM leader_acquire('tamper free', 'b', '1 h');
INSERT INTO granted SELECT epoch FROM leader_status WHERE election = 'tamper free';

-- Rows changed.  An epoch put higher or lower: the next one is higher than all.
SELECT fresh() AS e \gset
UPDATE leader_election_state SET epoch = epoch + 1000000000 WHERE election = 'tamper free';
SELECT is_leader, epoch > :e + 900000000 AS grows FROM leader_acquire('tamper free', 'b', '1 h');
INSERT INTO granted SELECT epoch FROM leader_status WHERE election = 'tamper free';
SELECT fresh() AS e \gset
UPDATE leader_election_state SET epoch = 1 WHERE election = 'tamper free';
SELECT * FROM all_calls(:e) WHERE call LIKE 'acquire%';
-- Ended by hand, or given to somebody else: not by the epoch of the one who was
-- told that it leads.
SELECT fresh() AS e \gset
UPDATE leader_election_state SET holder = NULL WHERE election = 'tamper';
SELECT * FROM all_calls(:e) WHERE call IN ('fence', 'write', 'acquire', 'acquire free');
SELECT fresh() AS e \gset
UPDATE leader_election_state SET holder = 'b' WHERE election = 'tamper';
SELECT * FROM all_calls(:e) WHERE call IN ('acquire', 'acquire free');

-- A term that the history has already, as after the state alone was restored:
-- history never stops an election.
SELECT fresh() AS e \gset
INSERT INTO leader_election_history VALUES ('tamper', :e, 'a', now(), now(), 'released');
SELECT leader_release('tamper', :e);
SELECT is_leader, epoch > :e AS grows FROM leader_acquire('tamper', 'b', '1 h');
SELECT count(*) FROM leader_election_history WHERE election = 'tamper' AND epoch = :e;
SELECT epoch AS e FROM leader_acquire('tamper lapsed', 'a', '100 ms') \gset
INSERT INTO leader_election_history VALUES ('tamper lapsed', :e, 'a', now(), now(), 'expired');
SELECT is_leader, epoch > :e AS grows FROM leader_acquire('tamper lapsed', 'b', '1 h', '10 s');
INSERT INTO granted SELECT epoch FROM leader_status WHERE epoch IS NOT NULL;

-- Values that no call would have written.
SELECT fresh() AS e \gset
UPDATE leader_election_state SET holder = repeat('h', 10000);
SELECT * FROM all_calls(:e) WHERE call <> 'acquire free';
SELECT fresh() AS e \gset
UPDATE leader_election_state SET holder = '', kind = 'x', owner = 'regress_le_nobody', ttl = 9223372036854775807, terms = -1;
SELECT call, outcome FROM all_calls(:e) WHERE outcome LIKE 'XX%' OR outcome LIKE '%LOWER%';
SELECT fresh() AS e \gset
UPDATE leader_election_state SET acquired_at = 'infinity', ttl = 1, terms = 9223372036854775807;
SELECT call, outcome FROM all_calls(:e) WHERE outcome LIKE 'XX%' OR outcome LIKE '%LOWER%';
SELECT fresh() AS e \gset
INSERT INTO leader_election_state SELECT repeat('long ', 100), current_user, 'l', 1000000, 1, 5, now(), 'x';
SELECT * FROM all_calls(:e);
SELECT count(*) FROM leader_renew_all('x');
\set VERBOSITY sqlstate
UPDATE leader_election_state SET epoch = -1;
UPDATE leader_election_state SET epoch = 9007199254740992;
UPDATE leader_election_state SET ttl = -1;

-- Used up: no epoch is left to draw.
\set VERBOSITY default
SELECT fresh() AS e \gset
SELECT setval('leader_election_epoch', 9007199254740991) > 0 AS used_up;
SELECT is_leader FROM leader_acquire('tamper free', 'b', '1 h');
\echo :LAST_ERROR_SQLSTATE
SELECT fresh() AS e \gset
UPDATE leader_election_state SET epoch = 9007199254740991 WHERE election = 'tamper free';
SELECT is_leader FROM leader_acquire('tamper free', 'b', '1 h');
\echo :LAST_ERROR_SQLSTATE

-- Tables altered.
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP COLUMN terms CASCADE;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state ADD COLUMN more int;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state ALTER terms TYPE numeric;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state RENAME TO elsewhere;
SELECT * FROM all_calls(:e);
ALTER TABLE elsewhere RENAME TO leader_election_state;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state RENAME TO elsewhere;
CREATE VIEW leader_election_state AS SELECT * FROM elsewhere;
SELECT * FROM all_calls(:e);
DROP VIEW leader_election_state;
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP CONSTRAINT leader_election_state_pkey;
SELECT * FROM all_calls(:e);
-- Another primary key is none: rows could no longer be found by name.
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP CONSTRAINT leader_election_state_pkey, ADD PRIMARY KEY (epoch);
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP CONSTRAINT leader_election_state_pkey, ADD PRIMARY KEY (terms, election);
SELECT call, outcome FROM all_calls(:e) WHERE outcome LIKE 'XX%' OR outcome LIKE '%LOWER%';
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP CONSTRAINT leader_election_state_pkey, ADD PRIMARY KEY (election) DEFERRABLE;
SELECT call, outcome FROM all_calls(:e) WHERE outcome LIKE 'XX%' OR outcome LIKE '%LOWER%';
-- Columns that may be null after all.
SELECT fresh() AS e \gset
ALTER TABLE leader_election_state DROP CONSTRAINT leader_election_state_epoch_check, ALTER acquired_at DROP NOT NULL,
	ALTER owner DROP NOT NULL, ALTER kind DROP NOT NULL, ALTER ttl DROP NOT NULL, ALTER epoch DROP NOT NULL,
	ALTER terms DROP NOT NULL;
UPDATE leader_election_state SET acquired_at = NULL, owner = NULL, kind = NULL, ttl = NULL, epoch = NULL, terms = NULL;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER TABLE leader_election_metadata DROP COLUMN metadata CASCADE;
SELECT * FROM all_calls(:e);
SELECT is_leader FROM leader_acquire('tamper metadata', 'a', '1 h', metadata => '{}');
\echo :LAST_ERROR_SQLSTATE
-- Triggers and rules on them count for nothing.
SELECT fresh() AS e \gset
CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER skip BEFORE INSERT OR UPDATE OR DELETE ON leader_election_state FOR EACH ROW EXECUTE FUNCTION skip();
SELECT * FROM all_calls(:e);
SELECT election, leader FROM leader_status ORDER BY election COLLATE "C";
-- An index that somebody has added is kept in order.
SELECT fresh() AS e \gset
CREATE INDEX somebodys ON leader_election_state (holder);
SELECT * FROM all_calls(:e);
SET enable_seqscan = off;
SELECT election FROM leader_election_state WHERE holder = 'b';
RESET enable_seqscan;
-- Sequences altered, renamed, taken out of the extension and dropped.
SELECT fresh() AS e \gset
ALTER SEQUENCE leader_election_epoch RENAME TO elsewhere;
SELECT * FROM all_calls(:e);
ALTER SEQUENCE elsewhere RENAME TO leader_election_epoch;
SELECT * FROM all_calls(:e);
SELECT fresh() AS e \gset
ALTER SEQUENCE leader_election_epoch MAXVALUE 1000 RESTART 1;
SELECT call, outcome ~ '^XX' AS internal FROM all_calls(:e) WHERE call = 'acquire free';
SELECT leader FROM leader_status WHERE election = 'tamper free';
SELECT fresh() AS e \gset
ALTER EXTENSION leader_election DROP SEQUENCE leader_election_epoch_drawn_at;
DROP SEQUENCE leader_election_epoch_drawn_at;
SELECT * FROM all_calls(:e) WHERE call LIKE 'acquire%';

-- The extension dropped in mid-session: by plans, functions and triggers that
-- remember it.
SELECT fresh() AS e \gset
CREATE FUNCTION cached(epoch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN leader_check('tamper', epoch);
END $$;
PREPARE renew AS SELECT is_leader FROM leader_renew('tamper', $1);
PREPARE put AS INSERT INTO ledger VALUES ($1);
SELECT cached(:e);
EXECUTE renew(:e);
EXECUTE put(1);
DROP EXTENSION leader_election CASCADE;
\set VERBOSITY sqlstate
SELECT cached(:e);
EXECUTE renew(:e);
EXECUTE put(2);
SELECT leader_check('tamper', :e);
CREATE EXTENSION leader_election;
SELECT cached(:e);
EXECUTE renew(:e);
EXECUTE put(3);
SELECT epoch AS e2, epoch > :e AS grows FROM leader_acquire('tamper', 'b', '1 h') \gset
SELECT :'grows', cached(:e2), cached(:e);
EXECUTE renew(:e2);
SELECT leader_protect('ledger', 'tamper');
EXECUTE put(4);
SELECT set_config('leader_election.fence', 'tamper=' || :e2, false) <> '' AS set;
EXECUTE put(4);
SELECT id FROM ledger WHERE id > 1 ORDER BY id;

-- Dropped by the very transaction that has used it.  What was fenced cannot be
-- judged any more, so it does not commit.
BEGIN;
SELECT leader_fence('tamper', :e2);
DROP EXTENSION leader_election CASCADE;
INSERT INTO ledger VALUES (5);
COMMIT;
SELECT count(*) FROM ledger WHERE id = 5;
SELECT leader_check('tamper', :e2);
BEGIN;
SELECT leader_fence('tamper', :e2);
SAVEPOINT s;
DROP EXTENSION leader_election CASCADE;
ROLLBACK TO s;
INSERT INTO ledger VALUES (6);
COMMIT;
SELECT count(*) FROM ledger WHERE id = 6;
-- A term that was begun goes with it.
BEGIN;
SELECT epoch AS e3 FROM leader_acquire('tamper dropped', 'a', '1 h') \gset
SELECT leader_release('tamper', :e2);
DROP EXTENSION leader_election CASCADE;
COMMIT;
SELECT count(*) FROM pg_extension WHERE extname = 'leader_election';
CREATE EXTENSION leader_election;
SELECT leader_check('tamper dropped', :e3), leader_check('tamper', :e2);
SELECT is_leader, epoch > :e3 AS grows FROM leader_acquire('tamper dropped', 'b', '1 h');
SELECT is_leader, epoch > :e3 AS grows FROM leader_acquire('tamper', 'b', '1 h');

\c :home
DROP DATABASE regression_le_tamper;
