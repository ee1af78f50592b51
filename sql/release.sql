--
-- Giving leadership back.  Guards that a release ends exactly the term that its
-- epoch names, once, and that a transaction sees its own release at once while
-- nothing is lost if it rolls back (P1, P4).
--

-- True for the call that ended the term, false afterwards.
SELECT epoch AS e1 FROM leader_acquire('release', 'a', '1 h') \gset
SELECT leader_release('release', :e1);
SELECT leader_release('release', :e1);
SELECT leader, state, expires_in, epoch = :e1 AS epoch, terms FROM leader_status WHERE election = 'release';
SELECT leader_check('release', :e1);
SELECT is_leader, epoch, leader, expires_in FROM leader_renew('release', :e1);
SELECT leader_set_metadata('release', :e1, '{}');
SELECT count(*) FROM leader_renew_all('a') WHERE election = 'release';
\set VERBOSITY sqlstate
SELECT leader_fence('release', :e1);

-- The next candidate need not wait.
SELECT epoch AS e2, epoch > :e1 AS grows FROM leader_acquire('release', 'b', '1 h') \gset
SELECT :'grows';

-- An old epoch, another election's, and one that was never issued end nothing.
SELECT epoch AS other FROM leader_acquire('release other', 'b', '1 h') \gset
SELECT leader_release('release', :e1), leader_release('release', :other),
       leader_release('release', :e2 + 1), leader_release('release', 0),
       leader_release('release other', :e2), leader_release('release nobody', :e2);
SELECT leader_check('release', :e2), leader_check('release other', :other);

-- A term that ran out and was not taken over: this call ends it.
SELECT epoch AS x1 FROM leader_acquire('release expired', 'a', '1 s') \gset
DO $$
BEGIN
	FOR i IN 1..6000 LOOP
		EXIT WHEN (SELECT state <> 'held' FROM leader_status WHERE election = 'release expired');
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT state FROM leader_status WHERE election = 'release expired';
SELECT leader_release('release expired', :x1);
SELECT leader_release('release expired', :x1);
SELECT state FROM leader_status WHERE election = 'release expired';

-- A transaction sees its own release.
BEGIN;
SELECT leader_release('release', :e2);
SELECT leader_check('release', :e2);
SELECT is_leader, epoch, leader FROM leader_renew('release', :e2);
SELECT count(*) FROM leader_renew_all('b') WHERE election = 'release';
SELECT leader_set_metadata('release', :e2, '{}');
SELECT leader_release('release', :e2);
SELECT state FROM leader_status WHERE election = 'release';
SAVEPOINT s;
SELECT leader_fence('release', :e2);
ROLLBACK TO s;
-- A new bid is a new term, also as the same holder.
SELECT epoch AS e3, epoch > :e2 AS grows, is_leader FROM leader_acquire('release', 'b', '1 h') \gset
SELECT :'grows', :'is_leader';
SELECT leader_check('release', :e2), leader_check('release', :e3);
SELECT leader_fence('release', :e3);
COMMIT;
SELECT leader_check('release', :e2), leader_check('release', :e3);
SELECT leader, epoch = :e3 AS epoch, terms FROM leader_status WHERE election = 'release';

-- Rolled back: the term goes on as if nothing had been, with its deadline.
BEGIN;
SELECT leader_release('release', :e3);
SELECT leader_check('release', :e3);
ROLLBACK;
SELECT leader_check('release', :e3);
SELECT is_leader, epoch = :e3 AS epoch FROM leader_acquire('release', 'b');
SELECT is_leader, leader FROM leader_acquire('release', 'c', '1 h');
SELECT leader_fence('release', :e3);
BEGIN;
SELECT leader_release('release', :e3);
SELECT epoch AS lost, is_leader FROM leader_acquire('release', 'c', '1 h') \gset
SELECT :'is_leader', leader_check('release', :lost);
ROLLBACK;
SELECT leader_check('release', :e3), leader_check('release', :lost);
SELECT is_leader, leader FROM leader_renew('release', :lost);
SELECT leader, epoch = :e3 AS epoch FROM leader_status WHERE election = 'release';

-- A term begun and ended in one transaction: nothing is left of it.
BEGIN;
SELECT epoch AS brief FROM leader_acquire('release brief', 'a', '1 h', metadata => '{"brief": 1}') \gset
SELECT leader_release('release brief', :brief);
SELECT leader_check('release brief', :brief);
COMMIT;
SELECT leader_check('release brief', :brief);
SELECT leader, state, metadata, terms FROM leader_status WHERE election = 'release brief';
SELECT is_leader, epoch > :brief AS grows FROM leader_acquire('release brief', 'b', '1 h');

-- A transaction's own release does not fail the commit of what it wrote before,
-- but nothing is written under the token afterwards.
CREATE TABLE release_table (v text);
SELECT leader_protect('release_table', 'release');
BEGIN;
SELECT leader_fence('release', :e3);
INSERT INTO release_table VALUES ('before the release');
SELECT leader_release('release', :e3);
SAVEPOINT s;
INSERT INTO release_table VALUES ('after the release');
ROLLBACK TO s;
COMMIT;
SELECT * FROM release_table;

-- Many times over, by two holders in turn: always a higher epoch, and as many
-- terms as there were grants.
DO $$
DECLARE
	last bigint := 0;
	a record;
BEGIN
	FOR i IN 1..100 LOOP
		SELECT * INTO STRICT a FROM leader_acquire('release often', 'h' || i % 2, '1 h');
		IF NOT a.is_leader OR a.epoch <= last OR NOT leader_release('release often', a.epoch) THEN
			RAISE EXCEPTION 'round %', i;
		END IF;
		last := a.epoch;
	END LOOP;
END $$;
SELECT terms, state FROM leader_status WHERE election = 'release often';
DROP TABLE release_table;
