--
-- leader_fence(): presenting a token for a transaction.  Guards P2 as one
-- session sees it: what is current, what is refused, and in which words.
-- Epochs differ from run to run; they are shown by what they are.
--
CREATE TABLE fence_epochs (label text, epoch bigint);
CREATE FUNCTION outcome(command text, OUT state text, OUT said text) LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
	e record;
BEGIN
	EXECUTE command;
	state := 'fine';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	said := format(E'%s\nDETAIL:  %s\nHINT:  %s', message, detail, hint);
	FOR e IN SELECT * FROM fence_epochs LOOP
		said := replace(said, e.epoch::text, '<' || e.label || '>');
	END LOOP;
END $$;

SELECT epoch AS first FROM leader_acquire('fence', 'a', '1 h') \gset
SELECT leader_release('fence', :first);
SELECT epoch AS current FROM leader_acquire('fence', 'b', '1 h') \gset
INSERT INTO fence_epochs VALUES ('first', :first), ('current', :current);

-- The current epoch passes.
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence', :current));
-- Every older one is stale, whether it was somebody's or nobody's.
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence', :first)) \gx
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence', 7)) \gx
-- A higher one was never issued.
INSERT INTO fence_epochs VALUES ('higher', :current + 1000);
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence', :current + 1000)) \gx
-- Nor was any for an election that nobody has ever led.
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence nobody', :current)) \gx
-- A released epoch is nobody's; so is what came before.
SELECT epoch AS released FROM leader_acquire('fence released', 'a', '1 h') \gset
SELECT leader_release('fence released', :released);
INSERT INTO fence_epochs VALUES ('released', :released);
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence released', :released)) \gx
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence released', :first)) \gx
INSERT INTO fence_epochs VALUES ('above the released', :released + 1000);
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence released', :released + 1000)) \gx
-- A write without any token.
CREATE TABLE fence_table (v text);
SELECT leader_protect('fence_table', 'fence');
SELECT * FROM outcome($$INSERT INTO fence_table VALUES ('no token')$$) \gx
SELECT * FROM outcome($$DELETE FROM fence_table$$) \gx
SELECT * FROM outcome($$TRUNCATE fence_table$$) \gx
-- The same where nobody leads, and where nobody ever did.
CREATE TABLE fence_vacant (v text);
SELECT leader_protect('fence_vacant', 'fence released');
SELECT * FROM outcome($$INSERT INTO fence_vacant VALUES ('no token')$$) \gx
SELECT leader_unprotect('fence_vacant');
SELECT leader_protect('fence_vacant', 'fence nobody');
SELECT * FROM outcome($$INSERT INTO fence_vacant VALUES ('no token')$$) \gx
DROP TABLE fence_vacant;

-- The token is for one transaction.
BEGIN;
SELECT leader_fence('fence', :current);
INSERT INTO fence_table VALUES ('fenced');
UPDATE fence_table SET v = v || ' twice';
COMMIT;
\set VERBOSITY sqlstate
INSERT INTO fence_table VALUES ('the next transaction');
\set VERBOSITY default
-- Outside a transaction block it is gone with the statement.
SELECT leader_fence('fence', :current);
\set VERBOSITY sqlstate
INSERT INTO fence_table VALUES ('the next statement');
\set VERBOSITY default

-- Presented twice, or together with tokens of other elections.
SELECT epoch AS other FROM leader_acquire('fence other', 'b', '1 h') \gset
CREATE TABLE fence_other (v text);
SELECT leader_protect('fence_other', 'fence other');
BEGIN;
SELECT leader_fence('fence', :current), leader_fence('fence', :current);
INSERT INTO fence_table VALUES ('two presentations');
SAVEPOINT s;
\set VERBOSITY sqlstate
INSERT INTO fence_other VALUES ('a token for another election');
ROLLBACK TO s;
SELECT leader_fence('fence other', :current);
ROLLBACK TO s;
\set VERBOSITY default
SELECT leader_fence('fence other', :other);
INSERT INTO fence_other VALUES ('two elections');
INSERT INTO fence_table VALUES ('two elections');
COMMIT;

-- An error at a stale presentation ends the transaction as errors do.
\set VERBOSITY sqlstate
BEGIN;
SELECT leader_fence('fence', :current);
INSERT INTO fence_table VALUES ('lost');
SELECT leader_fence('fence', :first);
INSERT INTO fence_table VALUES ('lost too');
COMMIT;
\set VERBOSITY default
TABLE fence_table;
TABLE fence_other;

-- It works without any protected table, also where nothing is written.
BEGIN READ ONLY;
SELECT leader_fence('fence', :current);
SELECT count(*) FROM fence_table;
COMMIT;
BEGIN;
SELECT leader_fence('fence', :current);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- No clock decides what is current: a lease that ran out and was not taken over
-- still is for the fence, though not for leader_check().
SELECT epoch AS expired FROM leader_acquire('fence expired', 'a', '1 s') \gset
INSERT INTO fence_epochs VALUES ('expired', :expired);
CREATE TABLE fence_expired (v text);
SELECT leader_protect('fence_expired', 'fence expired');
DO $$
BEGIN
	FOR i IN 1..6000 LOOP
		EXIT WHEN (SELECT state <> 'held' FROM leader_status WHERE election = 'fence expired');
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT leader_check('fence expired', :expired);
BEGIN;
SELECT leader_fence('fence expired', :expired);
INSERT INTO fence_expired VALUES ('expired, not taken over');
COMMIT;
TABLE fence_expired;
-- Taken over it is stale.
SELECT epoch AS taker FROM leader_acquire('fence expired', 'b', '1 h') \gset
INSERT INTO fence_epochs VALUES ('taker', :taker);
SELECT * FROM outcome(format('SELECT leader_fence(%L, %s)', 'fence expired', :expired)) \gx

-- A token that a transaction used is judged again when it commits; here the
-- transaction itself began the newer term.  Its own release was in order, but
-- the old token is good for nothing more.
BEGIN;
SELECT leader_fence('fence expired', :taker);
INSERT INTO fence_expired VALUES ('before own release');
SELECT leader_release('fence expired', :taker);
SELECT epoch AS successor FROM leader_acquire('fence expired', 'c', '1 h') \gset
INSERT INTO fence_epochs VALUES ('successor', :successor);
SELECT * FROM outcome($$INSERT INTO fence_expired VALUES ('old token')$$) \gx
SELECT leader_fence('fence expired', :successor);
INSERT INTO fence_expired VALUES ('own new term');
COMMIT;
TABLE fence_expired;

-- More elections in one transaction than are locked one by one.
SELECT count(*) FROM generate_series(1, 100) n, leader_acquire('fence many ' || n, 'h', '1 h');
BEGIN;
SELECT count(leader_fence(election, epoch)) FROM leader_status WHERE election LIKE 'fence many %';
INSERT INTO fence_epochs SELECT 'many', 0;
COMMIT;
SELECT count(*) FROM fence_epochs WHERE label = 'many';
BEGIN;
SELECT count(leader_fence(election, epoch)) FROM leader_status WHERE election LIKE 'fence many %';
SELECT count(*) FROM leader_status, leader_release(election, epoch) WHERE election = 'fence many 50';
SELECT is_leader FROM leader_acquire('fence many 50', 'h2', '1 h');
COMMIT;
SELECT leader FROM leader_status WHERE election = 'fence many 50';

-- Few tokens, and with those of a savepoint as many as are looked up in another way.
-- When it is rolled back, its own are forgotten, and those of before are not.
CREATE TABLE fence_many (n int);
SELECT leader_protect('fence_many', 'fence many {n}');
BEGIN;
SELECT set_config('leader_election.fence', format('"fence many 1"=%s, "fence many 2"=%s', a.epoch, b.epoch), true) <> '' AS set
FROM leader_status a, leader_status b WHERE a.election = 'fence many 1' AND b.election = 'fence many 2';
INSERT INTO fence_many VALUES (1);
SELECT leader_fence(election, epoch) FROM leader_status WHERE election = 'fence many 2';
SAVEPOINT many;
SELECT count(leader_fence(election, epoch)) FROM leader_status WHERE election ~ '^fence many 1.?$';
SET LOCAL leader_election.fence = '';
INSERT INTO fence_many VALUES (1), (2), (10), (19);
ROLLBACK TO many;
INSERT INTO fence_many VALUES (1), (2);
SET LOCAL leader_election.fence = '';
INSERT INTO fence_many VALUES (2);
SELECT state FROM outcome('INSERT INTO fence_many VALUES (1)');
SELECT state FROM outcome('INSERT INTO fence_many VALUES (10)');
SELECT count(leader_fence(election, epoch)) FROM leader_status WHERE election ~ '^fence many 1.?$';
INSERT INTO fence_many VALUES (1), (10);
COMMIT;
SELECT n, count(*) FROM fence_many GROUP BY n ORDER BY n;

-- A trigger that somebody else made of leader_fence_check() must be used as it is
-- meant.
CREATE TABLE fence_misused (id int, e bigint);
SELECT leader_fence_check();
CREATE TRIGGER t AFTER INSERT ON fence_misused FOR EACH STATEMENT EXECUTE FUNCTION leader_fence_check('fence');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH STATEMENT EXECUTE FUNCTION leader_fence_check();
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH ROW EXECUTE FUNCTION leader_fence_check('fence', 'e', 'x');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH STATEMENT EXECUTE FUNCTION leader_fence_check('fence', 'e');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH ROW EXECUTE FUNCTION leader_fence_check('fence', 'nowhere');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH ROW EXECUTE FUNCTION leader_fence_check('fence', 'id');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH ROW EXECUTE FUNCTION leader_fence_check('');
INSERT INTO fence_misused VALUES (1);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER t ON fence_misused;
-- Used right without leader_protect(): a row trigger without an epoch column.
\set VERBOSITY sqlstate
CREATE TRIGGER t BEFORE INSERT ON fence_misused FOR EACH ROW EXECUTE FUNCTION leader_fence_check('fence');
INSERT INTO fence_misused VALUES (1);
BEGIN;
SELECT leader_fence('fence', :current);
INSERT INTO fence_misused VALUES (1), (2);
COMMIT;
SELECT * FROM fence_misused;

DROP TABLE fence_table, fence_other, fence_expired, fence_misused, fence_epochs;
DROP FUNCTION outcome;
