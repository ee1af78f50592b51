--
-- Terms and tokens within one session's transactions: savepoints, exception
-- blocks, procedures that commit, cursors that outlive their transaction,
-- deferred triggers, PREPARE TRANSACTION.  Guards P1 (a term that is rolled back
-- was nobody's, and its epoch never comes again) and P2 (a token counts in its
-- transaction only, and is judged wherever the write comes from).
--
\set VERBOSITY sqlstate
CREATE TABLE tx (v text);
SELECT leader_protect('tx', 'tx');

-- A transaction may use the term that it has itself just acquired.
BEGIN;
SELECT epoch AS e1, is_leader FROM leader_acquire('tx', 'a', '1 h', metadata => '{"m": 1}') \gset
SELECT :'is_leader', leader_check('tx', :e1);
SELECT leader_fence('tx', :e1);
INSERT INTO tx VALUES ('in the granting transaction');
SELECT is_leader, epoch = :e1 AS epoch FROM leader_renew('tx', :e1);
SELECT is_leader, epoch = :e1 AS epoch FROM leader_acquire('tx', 'a', '2 h');
SELECT election, epoch = :e1 AS epoch FROM leader_renew_all('a') WHERE election = 'tx';
SELECT is_leader, epoch, leader FROM leader_acquire('tx', 'b', '1 h');
SELECT leader_set_metadata('tx', :e1, '{"m": 2}');
SELECT leader, epoch = :e1 AS epoch, state, ttl, metadata, terms FROM leader_status WHERE election = 'tx';
SELECT leader_check('tx', :e1);
COMMIT;
SELECT leader_check('tx', :e1);
SELECT leader, epoch = :e1 AS epoch, state, ttl, metadata, terms FROM leader_status WHERE election = 'tx';
TABLE tx;

-- Rolled back: nobody's, and the next epoch is higher all the same.
BEGIN;
SELECT epoch AS r1 FROM leader_acquire('tx rolled back', 'a', '1 h') \gset
SELECT leader_check('tx rolled back', :r1);
ROLLBACK;
SELECT leader_check('tx rolled back', :r1);
SELECT count(*) FROM leader_status WHERE election = 'tx rolled back';
SELECT is_leader FROM leader_renew('tx rolled back', :r1);
SELECT leader_fence('tx rolled back', :r1);
SELECT epoch AS r2, epoch > :r1 AS grows FROM leader_acquire('tx rolled back', 'b', '1 h') \gset
SELECT :'grows';
SELECT leader_fence('tx rolled back', :r1);

-- Savepoints.  ROLLBACK TO undoes the grant, RELEASE keeps it.
BEGIN;
SAVEPOINT one;
SELECT epoch AS s1 FROM leader_acquire('tx savepoint', 'a', '1 h') \gset
SELECT leader_check('tx savepoint', :s1);
ROLLBACK TO one;
SELECT leader_check('tx savepoint', :s1);
SELECT epoch AS s2, epoch > :s1 AS grows FROM leader_acquire('tx savepoint', 'b', '1 h') \gset
SELECT :'grows', leader_check('tx savepoint', :s2);
RELEASE one;
SELECT leader_check('tx savepoint', :s2);
SAVEPOINT two;
SAVEPOINT three;
SELECT leader_release('tx savepoint', :s2);
RELEASE three;
SELECT leader_check('tx savepoint', :s2);
SELECT epoch AS s3, epoch > :s2 AS grows FROM leader_acquire('tx savepoint', 'c', '1 h') \gset
SELECT :'grows', leader_check('tx savepoint', :s3);
ROLLBACK TO two;
SELECT leader_check('tx savepoint', :s2), leader_check('tx savepoint', :s3);
SELECT is_leader, epoch = :s2 AS epoch FROM leader_renew('tx savepoint', :s2);
COMMIT;
SELECT leader, epoch = :s2 AS epoch, terms FROM leader_status WHERE election = 'tx savepoint';
SELECT leader_check('tx savepoint', :s2), leader_check('tx savepoint', :s3);
-- A grant that was released in a savepoint that was rolled back stands.
BEGIN;
SELECT epoch AS k1 FROM leader_acquire('tx savepoint kept', 'a', '1 h') \gset
SAVEPOINT s;
SELECT leader_release('tx savepoint kept', :k1);
ROLLBACK TO s;
SELECT leader_check('tx savepoint kept', :k1);
COMMIT;
SELECT leader_check('tx savepoint kept', :k1);

-- Renewals are not undone: they do not belong to the transaction.
SELECT epoch AS n1 FROM leader_acquire('tx renewed', 'a', '1 h') \gset
SELECT pg_sleep(0.5);
SELECT clock_timestamp() AS before \gset
BEGIN;
SAVEPOINT s;
SELECT is_leader FROM leader_renew('tx renewed', :n1);
ROLLBACK TO s;
ROLLBACK;
SELECT expires_in + (clock_timestamp() - :'before') > '1 h' - interval '200 ms' AS renewed
FROM leader_status WHERE election = 'tx renewed';

-- A token first presented in a savepoint goes with it; one presented before
-- stays, also when the savepoint presented it again.
BEGIN;
SAVEPOINT s;
SELECT leader_fence('tx', :e1);
INSERT INTO tx VALUES ('rolled back to the savepoint');
ROLLBACK TO s;
INSERT INTO tx VALUES ('token gone');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT leader_fence('tx', :e1);
RELEASE s;
INSERT INTO tx VALUES ('token of a released savepoint');
SAVEPOINT t;
SELECT leader_fence('tx', :e1);
ROLLBACK TO t;
INSERT INTO tx VALUES ('token presented before');
COMMIT;
TABLE tx;

-- PL/pgSQL exception blocks are savepoints.
\set VERBOSITY default
DO $$
DECLARE
	a record;
	lost bigint;
	kept bigint;
BEGIN
	BEGIN
		SELECT * INTO a FROM leader_acquire('tx block', 'a', '1 h');
		lost := a.epoch;
		BEGIN
			PERFORM leader_release('tx block', lost);
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
			RAISE NOTICE 'release undone: %', leader_check('tx block', lost);
		END;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE 'grant undone: %', NOT leader_check('tx block', lost);
	END;
	SELECT * INTO a FROM leader_acquire('tx block', 'b', '1 h');
	kept := a.epoch;
	RAISE NOTICE 'higher: %, current: %', kept > lost, leader_check('tx block', kept);
	BEGIN
		PERFORM leader_fence('tx block', lost);
	EXCEPTION WHEN OTHERS THEN
		RAISE NOTICE 'fenced by the lost one: %', SQLSTATE;
	END;
	PERFORM leader_fence('tx block', kept);
END $$;
\set VERBOSITY sqlstate
SELECT leader, terms FROM leader_status WHERE election = 'tx block';
-- A refused write in a block does no harm to the transaction around it.
CREATE FUNCTION tx_try(value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tx VALUES (value);
	RETURN 'written';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
BEGIN;
SELECT tx_try('tried without a token');
SELECT leader_fence('tx', :e1);
SELECT tx_try('tried with the token');
COMMIT;
SELECT tx_try('tried in the next transaction');
SELECT * FROM tx WHERE v LIKE 'tried%';

-- More rolled-back grants than there is room for live leases: each epoch is new,
-- and higher, and nothing of them is left.
DO $$
DECLARE
	last bigint := 0;
	a record;
BEGIN
	FOR i IN 1..11000 LOOP
		BEGIN
			SELECT * INTO a FROM leader_acquire('tx often', 'h', '1 h');
			IF NOT a.is_leader OR a.epoch <= last THEN
				RAISE EXCEPTION 'round %: leader %', i, a.is_leader;
			END IF;
			last := a.epoch;
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT count(*) FROM leader_status WHERE election = 'tx often';

-- Procedures that commit.  leader_fence() presents for the transaction in which
-- it is called; what the setting presents counts in each.
CREATE PROCEDURE tx_fenced_once(epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM leader_fence('tx', epoch);
	INSERT INTO tx VALUES ('procedure, first transaction');
	COMMIT;
	INSERT INTO tx VALUES ('procedure, second transaction');
	COMMIT;
END $$;
CALL tx_fenced_once(:e1);
CREATE PROCEDURE tx_fenced_by_setting() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3 LOOP
		INSERT INTO tx VALUES ('setting, transaction ' || i);
		IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END $$;
CALL tx_fenced_by_setting();
SELECT set_config('leader_election.fence', 'tx=' || :e1, false) <> '' AS set;
CALL tx_fenced_by_setting();
RESET leader_election.fence;
CREATE PROCEDURE tx_procedure_term(INOUT first bigint, INOUT second bigint) LANGUAGE plpgsql AS $$
DECLARE
	a record;
BEGIN
	SELECT * INTO a FROM leader_acquire('tx procedure', 'a', '1 h');
	first := a.epoch;
	ROLLBACK;
	SELECT * INTO a FROM leader_acquire('tx procedure', 'a', '1 h');
	second := a.epoch;
	COMMIT;
	RAISE NOTICE 'first %, second %', leader_check('tx procedure', first), leader_check('tx procedure', second);
	SELECT * INTO a FROM leader_acquire('tx procedure', 'a', '1 h');
	RAISE NOTICE 'same %', a.epoch = second;
	PERFORM leader_release('tx procedure', second);
	ROLLBACK;
	RAISE NOTICE 'second %', leader_check('tx procedure', second);
	PERFORM leader_release('tx procedure', second);
	COMMIT;
	RAISE NOTICE 'second %', leader_check('tx procedure', second);
END $$;
\set VERBOSITY default
CALL tx_procedure_term(0, 0) \gset
\set VERBOSITY sqlstate
SELECT :second > :first AS grows;
SELECT * FROM tx WHERE v LIKE 'procedure%' OR v LIKE 'setting%';

-- A cursor WITH HOLD runs its query to the end at commit, after everything the
-- client has sent.  What it writes is fenced, and what it acquires is granted.
CREATE FUNCTION tx_write(value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tx VALUES (value);
	RETURN value;
END $$;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT tx_write('cursor, no token ' || n) FROM generate_series(1, 3) n;
COMMIT;
BEGIN;
SELECT leader_fence('tx', :e1);
DECLARE c CURSOR WITH HOLD FOR SELECT tx_write('cursor, token ' || n) FROM generate_series(1, 3) n;
COMMIT;
FETCH ALL c;
CLOSE c;
BEGIN;
SET LOCAL leader_election.fence = 'tx=1';
DECLARE c CURSOR WITH HOLD FOR SELECT tx_write('cursor, stale token ' || n) FROM generate_series(1, 3) n;
COMMIT;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT epoch, is_leader FROM leader_acquire('tx cursor', 'a', '1 h');
COMMIT;
FETCH c \gset
SELECT :'is_leader', leader_check('tx cursor', :epoch);
CLOSE c;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT leader_release('tx cursor', :epoch);
COMMIT;
FETCH c;
CLOSE c;
SELECT leader_check('tx cursor', :epoch);
SELECT * FROM tx WHERE v LIKE 'cursor%';

-- A deferred trigger does the only fenced write, at commit.
CREATE TABLE tx_plain (v text);
CREATE FUNCTION tx_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tx VALUES (NEW.v);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER copy AFTER INSERT ON tx_plain DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION tx_copy();
BEGIN;
INSERT INTO tx_plain VALUES ('deferred, no token');
COMMIT;
BEGIN;
INSERT INTO tx_plain VALUES ('deferred, token');
SELECT leader_fence('tx', :e1);
COMMIT;
BEGIN;
INSERT INTO tx_plain VALUES ('deferred, stale token');
SET LOCAL leader_election.fence = 'tx=1';
COMMIT;
BEGIN;
INSERT INTO tx_plain VALUES ('deferred, token never issued');
SELECT set_config('leader_election.fence', 'tx=' || :e1 + 1000000000, true) <> '' AS set;
COMMIT;
BEGIN;
INSERT INTO tx_plain VALUES ('deferred, token from the setting');
SELECT set_config('leader_election.fence', 'tx=' || :e1, true) <> '' AS set;
COMMIT;
-- Released in the meantime: the deferred write comes too late.
SELECT epoch AS d1 FROM leader_acquire('tx deferred', 'a', '1 h') \gset
BEGIN;
SELECT leader_fence('tx', :e1);
INSERT INTO tx_plain VALUES ('deferred, released before');
SELECT leader_release('tx', :e1);
COMMIT;
SELECT leader_check('tx', :e1);
SELECT * FROM tx WHERE v LIKE 'deferred%';
SELECT * FROM tx_plain;

-- A deferred trigger that gives the term back is the last thing that happens.
CREATE FUNCTION tx_give_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM leader_release('tx deferred', NEW.v::bigint);
	RETURN NULL;
END $$;
CREATE TABLE tx_done (v text);
CREATE CONSTRAINT TRIGGER give_back AFTER INSERT ON tx_done DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION tx_give_back();
BEGIN;
INSERT INTO tx_done VALUES (:d1);
SELECT leader_check('tx deferred', :d1);
COMMIT;
SELECT leader_check('tx deferred', :d1);

-- PREPARE TRANSACTION is refused whenever a token was used or an election
-- changed, as COMMIT PREPARED would judge nothing.  The server need not have
-- prepared transactions switched on for that.
BEGIN;
SELECT leader_fence('tx', :e1);
PREPARE TRANSACTION 'leader_election';
\set VERBOSITY default
BEGIN;
SELECT is_leader FROM leader_acquire('tx prepared', 'a', '1 h');
PREPARE TRANSACTION 'leader_election';
\set VERBOSITY sqlstate
BEGIN;
SELECT is_leader FROM leader_acquire('tx prepared', 'a', '1 h');
PREPARE TRANSACTION 'leader_election';
BEGIN;
SELECT leader_release('tx', :e1);
PREPARE TRANSACTION 'leader_election';
BEGIN;
SELECT leader_set_metadata('tx', :e1, '{}');
PREPARE TRANSACTION 'leader_election';
BEGIN;
SELECT set_config('leader_election.fence', 'tx=' || :e1, true) <> '' AS set;
INSERT INTO tx VALUES ('prepared');
PREPARE TRANSACTION 'leader_election';
-- Nothing of it is left.
SELECT count(*) FROM leader_status WHERE election = 'tx prepared';
SELECT leader_check('tx', :e1);
SELECT metadata FROM leader_status WHERE election = 'tx';
SELECT count(*) FROM tx WHERE v = 'prepared';

-- Two statements in one message are one transaction.
SELECT leader_fence('tx', :e1)\; INSERT INTO tx VALUES ('in one message');
INSERT INTO tx VALUES ('in the message before')\; SELECT leader_fence('tx', :e1);
SELECT * FROM tx WHERE v LIKE 'in %message%';

-- A chained transaction begins without a token.
BEGIN;
SELECT leader_fence('tx', :e1);
INSERT INTO tx VALUES ('chained 1');
COMMIT AND CHAIN;
INSERT INTO tx VALUES ('chained 2');
ROLLBACK;
SELECT * FROM tx WHERE v LIKE 'chained%';

-- synchronous_commit off in the session does not weaken a grant, and is back
-- afterwards (P7).
SET synchronous_commit = off;
BEGIN;
SELECT is_leader FROM leader_acquire('tx synchronous', 'a', '1 h');
SHOW synchronous_commit;
COMMIT;
SHOW synchronous_commit;
RESET synchronous_commit;

DROP TABLE tx, tx_plain, tx_done;
DROP FUNCTION tx_try, tx_write, tx_copy, tx_give_back;
DROP PROCEDURE tx_fenced_once, tx_fenced_by_setting, tx_procedure_term;
