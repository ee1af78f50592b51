--
-- External elections, as one session sees them: tokens come from elsewhere, and
-- the highest one that was committed is current.  Guards P2 for them (a lower
-- token is stale, a higher one counts from its commit and not before), which
-- elections become external, and what is refused on them.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_owner, regress_le_other;
RESET client_min_messages;

CREATE ROLE regress_le_owner;
CREATE ROLE regress_le_other;
CREATE VIEW mark AS
SELECT election, epoch, kind, state, leader, ttl, expires_in, metadata, pid, terms,
       acquired_at BETWEEN now() - interval '10 min' AND clock_timestamp() AS acquired_at
FROM leader_status WHERE election LIKE 'external%';
-- The SQLSTATE of a statement
CREATE FUNCTION state(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'fine';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE TABLE ledger (id int, fence_epoch bigint);
CREATE TABLE book (id int);

-- One that did not exist: free, and no token is current.
SELECT leader_configure('external', external => true);
SELECT * FROM mark WHERE election = 'external' \gx
SELECT leader_check('external', 0), leader_check('external', 1);
SELECT token, state(format('SELECT leader_fence(%L, %s)', 'external', token))
FROM unnest('{0,-1,-9223372036854775808,NULL}'::bigint[]) AS t(token);
SELECT leader_fence('external', 0);
SELECT leader_protect('book', 'external');
INSERT INTO book VALUES (1);
SELECT leader_unprotect('book');

-- The first token, and then one that is higher: each raises the mark.
SELECT leader_fence('external', 7);
SELECT * FROM mark WHERE election = 'external' \gx
SELECT leader_fence('external', 10);
SELECT epoch, state, terms FROM mark WHERE election = 'external';
-- The same passes as often as one likes, and raises nothing; a lower one is stale.
SELECT leader_fence('external', 10), leader_fence('external', 10);
SELECT epoch, state, terms FROM mark WHERE election = 'external';
SELECT leader_fence('external', 9);
\echo :LAST_ERROR_SQLSTATE
SELECT token, state(format('SELECT leader_fence(%L, %s)', 'external', token))
FROM unnest('{10,9,7,1,0,-1,-9223372036854775808}'::bigint[]) AS t(token);
-- In the words of leader_check: only the one that is current.
SELECT token, leader_check('external', token)
FROM unnest('{11,10,9,0,-1,9007199254740991,9223372036854775807}'::bigint[]) AS t(token);
SELECT leader_check('external', 11), epoch FROM mark WHERE election = 'external';

-- It is raised by the commit: not before, and not without it.
BEGIN;
SELECT leader_fence('external', 20);
SELECT leader_check('external', 10), leader_check('external', 20), epoch FROM mark WHERE election = 'external';
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'object' AND classid = 'leader_election_state'::regclass;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
ROLLBACK;
SELECT epoch, terms FROM mark WHERE election = 'external';
BEGIN;
SELECT leader_fence('external', 20);
SAVEPOINT s;
SELECT 1 / 0;
ROLLBACK TO s;
SELECT leader_fence('external', 20);
COMMIT;
SELECT epoch, terms FROM mark WHERE election = 'external';
BEGIN;
SELECT leader_fence('external', 21);
SELECT 1 / 0;
COMMIT;
SELECT epoch, terms FROM mark WHERE election = 'external';
-- A savepoint that is rolled back takes its token with it; one that is kept does not.
BEGIN;
SAVEPOINT s;
SELECT leader_fence('external', 30);
ROLLBACK TO s;
COMMIT;
SELECT epoch FROM mark WHERE election = 'external';
BEGIN;
SAVEPOINT s;
SELECT leader_fence('external', 40);
ROLLBACK TO s;
SELECT leader_fence('external', 30);
COMMIT;
SELECT epoch FROM mark WHERE election = 'external';
BEGIN;
SAVEPOINT s;
SAVEPOINT t;
SELECT leader_fence('external', 31);
RELEASE t;
ROLLBACK TO s;
SAVEPOINT t;
SELECT leader_fence('external', 32);
RELEASE t;
RELEASE s;
COMMIT;
SELECT epoch FROM mark WHERE election = 'external';
DO $$
BEGIN
	BEGIN
		PERFORM leader_fence('external', 50);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	PERFORM leader_fence('external', 33);
END $$;
SELECT epoch FROM mark WHERE election = 'external';
-- In a procedure it is the procedure's own commits that count.
DO $$
BEGIN
	PERFORM leader_fence('external', 34);
	COMMIT;
	PERFORM leader_fence('external', 35);
	ROLLBACK;
	PERFORM leader_fence('external', 34);
END $$;
SELECT epoch FROM mark WHERE election = 'external';

-- Several in one transaction: the highest wins, and none passes that it makes stale.
BEGIN;
SELECT leader_fence('external', 36), leader_fence('external', 37), leader_fence('external', 35);
COMMIT;
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT leader_fence('external', 34), leader_fence('external', 35);
COMMIT;
SELECT epoch FROM mark WHERE election = 'external';

-- Of several elections in one transaction: all or none.
SELECT leader_configure('external ' || n, external => true) FROM generate_series(1, 3) AS n;
BEGIN;
SELECT leader_fence('external 1', 3), leader_fence('external 2', 2), leader_fence('external 3', 1);
COMMIT;
SELECT election, epoch FROM mark WHERE election ~ '\d' ORDER BY election;
BEGIN;
SELECT leader_fence('external 1', 4), leader_fence('external 2', 4), leader_fence('external 2', 3), leader_fence('external 3', 4);
COMMIT;
SELECT election, epoch FROM mark WHERE election ~ '\d' ORDER BY election;
-- Together with terms of other kinds, that end or begin in the same transaction.
SELECT epoch AS lease FROM leader_acquire('external lease', 'h', '1 h') \gset
BEGIN;
SELECT leader_fence('external 1', 5), leader_fence('external lease', :lease);
SELECT is_leader FROM leader_acquire('external lease 2', 'h', '1 h');
SELECT leader_release('external lease', :lease);
SELECT leader_fence('external 2', 5);
COMMIT;
SELECT election, CASE kind WHEN 'external' THEN epoch END AS token, state FROM mark WHERE election ~ '[12]|lease' ORDER BY election;

-- The limits: tokens lie below 2^53, also those that come by a row.
SELECT leader_fence('external 3', 9007199254740992);
\echo :LAST_ERROR_SQLSTATE
SELECT state('SELECT leader_fence(''external 3'', 9223372036854775807)'),
       state('SET leader_election.fence = ''"external 3"=9007199254740992''');
SELECT leader_protect('ledger', 'external 3', 'fence_epoch');
SELECT state('INSERT INTO ledger VALUES (1, 9007199254740992)'), state('INSERT INTO ledger VALUES (1, 9223372036854775807)'),
       state('INSERT INTO ledger VALUES (1, 0)'), state('INSERT INTO ledger VALUES (1, -1)');
SELECT leader_fence('external 3', 9007199254740991);
SELECT epoch FROM mark WHERE election = 'external 3';
SELECT state('SELECT leader_fence(''external 3'', 9007199254740992)'), state('SELECT leader_fence(''external 3'', 9007199254740990)');
SELECT leader_unprotect('ledger');
-- A transaction raises at most 64 marks, and depends on more.
SELECT count(leader_configure('external many ' || n, external => true)) FROM generate_series(1, 70) AS n;
BEGIN;
SELECT count(leader_fence('external many ' || n, 1)) FROM generate_series(1, 64) AS n;
COMMIT;
SELECT count(*) FROM mark WHERE election LIKE 'external many %' AND epoch = 1;
BEGIN;
SELECT count(leader_fence('external many ' || n, 2)) FROM generate_series(1, 65) AS n;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT count(*) FROM mark WHERE election LIKE 'external many %' AND epoch = 1;
-- Those that equal the mark do not count; a raise goes with them.
BEGIN;
SELECT count(leader_fence('external many ' || n, 1)) FROM generate_series(1, 64) AS n;
SELECT leader_fence('external many 65', 1), leader_fence('external many 66', 1);
COMMIT;
SELECT count(*) FROM mark WHERE election LIKE 'external many %' AND epoch = 1;
-- What a savepoint took back does not count either.
BEGIN;
SAVEPOINT s;
SELECT count(leader_fence('external many ' || n, 3)) FROM generate_series(1, 64) AS n;
ROLLBACK TO s;
SELECT count(leader_fence('external many ' || n, 2)) FROM generate_series(3, 66) AS n;
COMMIT;
SELECT epoch, count(*) FROM mark WHERE election LIKE 'external many %' GROUP BY epoch ORDER BY epoch;

-- Through a protected table: by leader_fence(), the setting, the epoch column.
SELECT leader_configure('external table', external => true);
SELECT leader_protect('ledger', 'external table', 'fence_epoch'), leader_protect('book', 'external table');
\set VERBOSITY sqlstate
INSERT INTO ledger VALUES (1, NULL);
INSERT INTO book VALUES (1);
INSERT INTO ledger VALUES (2, 5);
SELECT epoch FROM mark WHERE election = 'external table';
INSERT INTO ledger VALUES (3, 4);
INSERT INTO ledger VALUES (4, 5);
INSERT INTO book VALUES (5);
SET leader_election.fence = '"external table"=6';
SELECT epoch FROM mark WHERE election = 'external table';
INSERT INTO book VALUES (6);
SELECT epoch FROM mark WHERE election = 'external table';
INSERT INTO ledger VALUES (7, NULL);
INSERT INTO ledger VALUES (8, 5);
UPDATE ledger SET id = 9 WHERE id = 4;
SET leader_election.fence = '"external table"=5';
INSERT INTO book VALUES (10);
RESET leader_election.fence;
BEGIN;
SELECT leader_fence('external table', 7);
INSERT INTO book VALUES (11);
INSERT INTO ledger VALUES (11, NULL);
UPDATE ledger SET id = 12 WHERE id = 2;
DELETE FROM ledger WHERE id = 9;
COMMIT;
SELECT epoch FROM mark WHERE election = 'external table';
BEGIN;
SELECT leader_fence('external table', 8);
TRUNCATE book;
ROLLBACK;
-- Rows with several tokens: none but the highest, so the commit fails.
INSERT INTO ledger VALUES (13, 8), (13, 9), (13, 10);
INSERT INTO ledger VALUES (14, 10), (14, 10), (14, 10);
-- An UPDATE that puts a higher token into a row claims with it.
UPDATE ledger SET fence_epoch = 11 WHERE id = 14;
SELECT epoch, terms FROM mark WHERE election = 'external table';
SELECT * FROM ledger ORDER BY id, fence_epoch;
SELECT * FROM book ORDER BY id;
-- A deferred trigger that presents one while the transaction commits.
CREATE TABLE deferred (id int);
CREATE FUNCTION present() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM leader_fence('external table', NEW.id);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER present AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION present();
INSERT INTO deferred VALUES (11);
INSERT INTO deferred VALUES (10);
INSERT INTO deferred VALUES (12);
INSERT INTO deferred VALUES (13), (14);
SELECT epoch FROM mark WHERE election = 'external table';
SELECT id FROM deferred ORDER BY id;
DROP TABLE deferred;
DROP FUNCTION present;
-- Changes applied as a replica raise it as well.
SELECT leader_unprotect('ledger');
SELECT leader_protect('ledger', 'external table', 'fence_epoch', true);
SET session_replication_role = replica;
INSERT INTO ledger VALUES (15, 20);
INSERT INTO ledger VALUES (15, 19);
RESET session_replication_role;
SELECT epoch FROM mark WHERE election = 'external table';
SELECT leader_unprotect('ledger'), leader_unprotect('book');
-- Templates: each row by the external election that it names.
ALTER TABLE ledger ADD shard int;
SELECT leader_configure('external shard ' || n, external => true) FROM generate_series(1, 2) AS n;
SELECT leader_protect('ledger', 'external shard {shard}', 'fence_epoch');
INSERT INTO ledger VALUES (20, 1, 1), (20, 2, 2), (20, 1, 1);
SELECT election, epoch FROM mark WHERE election LIKE 'external shard%' ORDER BY election;
INSERT INTO ledger VALUES (21, 1, 1), (21, 1, 2);
INSERT INTO ledger VALUES (21, 3, 3);
SELECT leader_unprotect('ledger');

-- A transaction that may not write cannot raise it, and can do all else.
BEGIN READ ONLY;
SAVEPOINT s;
SELECT leader_fence('external', 99);
ROLLBACK TO s;
SELECT leader_fence('external', 34);
SELECT leader_check('external', 34);
SAVEPOINT s;
SELECT leader_fence('external', 33);
ROLLBACK TO s;
SELECT leader_configure('external', external => true);
ROLLBACK;
SET default_transaction_read_only = on;
\set VERBOSITY default
SELECT leader_fence('external', 99);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
RESET default_transaction_read_only;
SELECT epoch FROM mark WHERE election = 'external';
-- In the other isolation levels it goes as in READ COMMITTED.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT leader_fence('external', 41);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT leader_fence('external', 42);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;
SELECT leader_fence('external', 43);
ROLLBACK;
SELECT epoch FROM mark WHERE election = 'external';

-- COMMIT PREPARED would run nothing of ours.
BEGIN;
SELECT leader_fence('external', 43);
PREPARE TRANSACTION 'leader_election_external';
BEGIN;
SELECT leader_fence('external', 42);
PREPARE TRANSACTION 'leader_election_external';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'leader_election_external';
SELECT epoch FROM mark WHERE election = 'external';

-- There is no leadership of it to be had here.
\set VERBOSITY default
SELECT is_leader FROM leader_acquire('external', 'h', '1 h');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT is_leader FROM leader_acquire('external', 'h', '1 h', wait => '5 s');
SELECT is_leader FROM leader_acquire_session('external', 'h');
SELECT is_leader FROM leader_acquire_session('external', 'h', '1 h');
BEGIN READ ONLY;
SELECT is_leader FROM leader_acquire('external', 'h', '1 h');
ROLLBACK;
SELECT is_leader, epoch, leader, expires_in, step_down_after, retry_after > '0' AS later FROM leader_renew('external', 42);
SELECT is_leader, epoch FROM leader_renew('external', 43);
SELECT leader_release('external', 42), leader_release('external', 43);
SELECT leader_set_metadata('external', 42, '{"a": 1}'), leader_set_metadata('external', 43, '{"a": 1}');
SELECT * FROM leader_renew_all('h') WHERE election = 'external';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT leader_fence('external', 42);
SELECT epoch, state, leader, metadata FROM mark WHERE election = 'external';
-- No term of this server, so none is listed, and no holder has it.
SELECT count(*) FROM leader_term WHERE election = 'external';

-- It stays external; to say so again changes nothing.
\set VERBOSITY default
SELECT leader_configure('external', external => false);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT leader_configure('external', external => true), leader_configure('external'), leader_configure('external', external => NULL);
SELECT epoch, kind, state FROM mark WHERE election = 'external';
SELECT leader_configure(NULL, external => true);
SELECT leader_configure('', external => true);

-- Only a free election becomes external: not one that somebody leads.
SELECT epoch AS lease FROM leader_acquire('external late', 'h', '1 h') \gset
\set VERBOSITY default
SELECT leader_configure('external late', external => true);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT kind, state FROM mark WHERE election = 'external late';
SELECT leader_configure('external late', external => false);
SELECT leader_release('external late', :lease);
SELECT epoch AS lease FROM leader_acquire_session('external late', 'h') \gset
SELECT leader_configure('external late', external => true);
SELECT leader_release('external late', :lease);
SELECT epoch AS lease FROM leader_acquire_session('external late', 'h', '1 h') \gset
SELECT leader_configure('external late', external => true);
SELECT leader_release('external late', :lease);
-- In the transaction that leads, and in the one that released.
BEGIN;
SELECT epoch AS lease FROM leader_acquire('external late', 'h', '1 h') \gset
SELECT leader_configure('external late', external => true);
ROLLBACK;
-- Undone with its transaction or savepoint.
BEGIN;
SELECT leader_configure('external late', external => true);
SELECT kind FROM mark WHERE election = 'external late';
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT leader_configure('external late', external => true);
ROLLBACK TO s;
SELECT is_leader FROM leader_acquire('external late', 'h', '1 h');
SELECT epoch AS lease FROM leader_acquire('external late', 'h', '1 h') \gset
COMMIT;
SELECT kind, state FROM mark WHERE election = 'external late';
-- In one transaction with a release, and with a first token above its last epoch.
BEGIN;
SELECT leader_release('external late', :lease);
SELECT leader_configure('external late', external => true);
SELECT leader_fence('external late', :lease + 1000);
COMMIT;
SELECT kind, state, epoch = :lease + 1000 AS raised FROM mark WHERE election = 'external late';
-- Its epochs of before are stale: they are the mark, or below it.
SELECT state(format('SELECT leader_fence(%L, %s)', 'external late', :lease)), leader_check('external late', :lease);
SELECT is_leader FROM leader_renew('external late', :lease);
SELECT leader_release('external late', :lease);
-- The terms of before are remembered.
SELECT leader, end_reason, count(*) FROM leader_term WHERE election = 'external late' GROUP BY leader, end_reason ORDER BY 1, 2;
-- Released, its last number is nobody's, before it became external and after; a
-- foreign token must be higher.
SELECT epoch AS lease FROM leader_acquire('external released', 'h', '1 h') \gset
SELECT leader_release('external released', :lease);
SELECT state(format('SELECT leader_fence(%L, %s)', 'external released', :lease));
SELECT leader_configure('external released', external => true);
SELECT state(format('SELECT leader_fence(%L, %s)', 'external released', :lease)), leader_check('external released', :lease);
SELECT state(format('SELECT leader_fence(%L, %s)', 'external released', 1)),
       state(format('SELECT leader_fence(%L, %s)', 'external released', :lease + 1000));
-- The same for a lease that has run out, whose last term ends with that.
SELECT epoch AS lease FROM leader_acquire('external expired', 'h', '100 ms') \gset
DO $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM leader_status WHERE election = 'external expired' AND state = 'expired') LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT state(format('SELECT leader_fence(%L, %s)', 'external expired', :lease)), leader_check('external expired', :lease);
SELECT leader_configure('external expired', external => true);
SELECT state(format('SELECT leader_fence(%L, %s)', 'external expired', :lease)), leader_check('external expired', :lease);
SELECT is_leader FROM leader_renew('external expired', :lease);
SELECT leader, end_reason FROM leader_term WHERE election = 'external expired';
SELECT kind, leader FROM mark WHERE election = 'external expired';

-- Rights.  Whoever makes it external owns it; to raise it takes membership, by
-- whichever way the token comes; the current token takes rights on the table.
SET ROLE regress_le_owner;
SELECT leader_configure('external owned', external => true);
SELECT leader_fence('external owned', 5);
RESET ROLE;
SELECT owner FROM leader_status WHERE election = 'external owned';
SELECT leader_protect('book', 'external owned'), leader_protect('ledger', 'external owned', 'fence_epoch');
GRANT ALL ON book, ledger TO regress_le_other;
SET ROLE regress_le_other;
SELECT leader_configure('external owned', external => true);
SELECT leader_configure('external owned', external => false);
SELECT leader_configure('external owned');
\set VERBOSITY default
SELECT leader_fence('external owned', 6);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT leader_fence('external owned', 5);
SELECT leader_fence('external owned', 4);
SELECT leader_check('external owned', 5);
SELECT is_leader FROM leader_acquire('external owned', 'h');
INSERT INTO ledger VALUES (30, 6);
INSERT INTO ledger VALUES (31, 9007199254740992);
INSERT INTO ledger VALUES (32, 5);
INSERT INTO ledger VALUES (33, 4);
SET leader_election.fence = '"external owned"=6';
INSERT INTO book VALUES (30);
INSERT INTO ledger VALUES (34, NULL);
SET leader_election.fence = '"external owned"=5';
INSERT INTO book VALUES (32);
INSERT INTO ledger VALUES (35, NULL);
SET leader_election.fence = '"external owned"=4';
INSERT INTO book VALUES (33);
RESET leader_election.fence;
RESET ROLE;
SELECT epoch FROM mark WHERE election = 'external owned';
GRANT regress_le_owner TO regress_le_other;
SET ROLE regress_le_other;
INSERT INTO ledger VALUES (36, 6);
SET leader_election.fence = '"external owned"=7';
INSERT INTO book VALUES (36);
RESET leader_election.fence;
SELECT leader_fence('external owned', 8);
RESET ROLE;
SELECT epoch FROM mark WHERE election = 'external owned';
-- Asked when the token is presented: what becomes of the membership until the
-- commit is no matter.
BEGIN;
SET LOCAL ROLE regress_le_other;
SELECT leader_fence('external owned', 9);
RESET ROLE;
REVOKE regress_le_owner FROM regress_le_other;
COMMIT;
SELECT epoch FROM mark WHERE election = 'external owned';
-- A refusal tells strangers no mark.
\set VERBOSITY default
SET ROLE regress_le_other;
INSERT INTO ledger VALUES (37, 4);
INSERT INTO ledger VALUES (37, NULL);
SELECT election, epoch, kind, state, owner FROM leader_status WHERE election = 'external owned';
RESET ROLE;
\set VERBOSITY sqlstate
SELECT leader_unprotect('book'), leader_unprotect('ledger');
-- To create one takes USAGE on the counter, and there may not be too many.
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC;
SET ROLE regress_le_other;
SELECT leader_configure('external new', external => true);
RESET ROLE;
GRANT USAGE ON SEQUENCE leader_election_epoch TO PUBLIC;
SET leader_election.max_elections = 0;
SELECT leader_configure('external new', external => true);
RESET leader_election.max_elections;
SELECT count(*) FROM leader_status WHERE election = 'external new';

SELECT * FROM ledger WHERE id >= 20 ORDER BY id, fence_epoch, shard;
SELECT * FROM book ORDER BY id;
DROP VIEW mark;
DROP TABLE ledger, book;
DROP FUNCTION state;
DROP ROLE regress_le_owner, regress_le_other;

-- A transaction that turns read-only after it has presented a higher token
SELECT leader_configure('external read only', external => true);
\set VERBOSITY sqlstate
BEGIN;
SELECT leader_fence('external read only', 1);
SET TRANSACTION READ ONLY;
COMMIT;
\set VERBOSITY default
SELECT leader_check('external read only', 1);
