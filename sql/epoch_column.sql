--
-- Tables whose rows carry the epoch.  Guards P2 row by row: the stored epoch is
-- the one that was judged, a row without a claim of its own is stamped, and no
-- kind of statement gets past the fence.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_writer;
RESET client_min_messages;

CREATE TABLE ledger (id int PRIMARY KEY, amount int, fence_epoch bigint);
CREATE TABLE plain (id int, amount int);
SELECT epoch AS old FROM leader_acquire('epoch column', 'a', '1 h') \gset
SELECT leader_release('epoch column', :old);
SELECT epoch AS current FROM leader_acquire('epoch column', 'b', '1 h') \gset
SELECT leader_protect('ledger', 'epoch column', 'fence_epoch');
\set VERBOSITY sqlstate

-- Rows as they are stored: by whose epoch?
CREATE VIEW rows AS
SELECT l.id, l.amount, CASE WHEN l.fence_epoch = s.epoch THEN 'current'
                           WHEN l.fence_epoch IS NULL THEN 'none' ELSE 'other' END AS by
FROM ledger l, leader_status s WHERE s.election = 'epoch column' ORDER BY l.id;

-- INSERT.  An epoch in the row is a claim, and is judged.
INSERT INTO ledger VALUES (1, 10, :current);
INSERT INTO ledger VALUES (2, 10, :old);
INSERT INTO ledger VALUES (2, 10, :current + 1000000000);
INSERT INTO ledger VALUES (2, 10, 0);
INSERT INTO ledger VALUES (2, 10, -1);
-- NULL is none: stamped with the presented token, refused if there is none.
INSERT INTO ledger VALUES (2, 10, NULL);
INSERT INTO ledger (id) VALUES (2);
BEGIN;
SELECT leader_fence('epoch column', :current);
INSERT INTO ledger VALUES (2, 10, NULL);
INSERT INTO ledger (id, amount) VALUES (3, 10);
INSERT INTO ledger VALUES (4, 10, :current);
-- The claim in the row counts, not what was presented.
SAVEPOINT s;
INSERT INTO ledger VALUES (5, 10, :old);
ROLLBACK TO s;
-- One bad row fails the statement.
INSERT INTO ledger VALUES (6, 10, NULL), (7, 10, :old), (8, 10, :current);
ROLLBACK TO s;
INSERT INTO ledger VALUES (6, 10, NULL), (7, 10, :current), (8, 10, NULL);
COMMIT;
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
INSERT INTO ledger (id, amount) VALUES (9, 10) RETURNING fence_epoch = :current AS stamped;
INSERT INTO ledger SELECT n, 10 FROM generate_series(10, 20) n;
-- A current claim passes beside a stale setting; a row without one does not.
SELECT set_config('leader_election.fence', '"epoch column"=' || :old, false) <> '' AS set;
INSERT INTO ledger VALUES (21, 10, :current);
INSERT INTO ledger VALUES (22, 10, NULL);
RESET leader_election.fence;
SELECT by, count(*), min(id), max(id) FROM rows GROUP BY by;

-- UPDATE.  A new value in the column is a claim.
UPDATE ledger SET amount = 11, fence_epoch = :old WHERE id = 1;
UPDATE ledger SET amount = 11, fence_epoch = :current + 1000000000 WHERE id = 1;
-- Left as it was, or set to what it was: no claim, or a stale leader could write
-- under the epoch that the current one has left in the row.
UPDATE ledger SET amount = 11 WHERE id = 1;
UPDATE ledger SET amount = 11, fence_epoch = fence_epoch WHERE id = 1;
UPDATE ledger SET amount = 11, fence_epoch = :current WHERE id = 1;
UPDATE ledger SET amount = 11, fence_epoch = NULL WHERE id = 1;
SELECT * FROM rows WHERE id = 1;
BEGIN;
SELECT leader_fence('epoch column', :current);
UPDATE ledger SET amount = 12 WHERE id = 1;
UPDATE ledger SET amount = 13, fence_epoch = NULL WHERE id = 2;
UPDATE ledger SET amount = 14, fence_epoch = :current WHERE id = 3;
SAVEPOINT s;
UPDATE ledger SET amount = 15, fence_epoch = :old WHERE id = 4;
ROLLBACK TO s;
COMMIT;
SELECT * FROM rows WHERE id <= 4;
-- Rows that an earlier leader has left: to put the current epoch in is a claim.
SET leader_election.enforce = off;
INSERT INTO ledger VALUES (100, 10, :old), (101, 10, :old), (102, 10, NULL), (103, 10, :old);
RESET leader_election.enforce;
UPDATE ledger SET amount = 11, fence_epoch = :current WHERE id IN (100, 102);
UPDATE ledger SET amount = 11 WHERE id = 101;
UPDATE ledger SET amount = 11, fence_epoch = :old WHERE id = 101;
INSERT INTO ledger VALUES (101, 11, :current) ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, fence_epoch = excluded.fence_epoch;
BEGIN;
SELECT leader_fence('epoch column', :current);
UPDATE ledger SET amount = 11 WHERE id = 103;
COMMIT;
SELECT * FROM rows WHERE id >= 100;
-- A stale setting must not bring a row of the current leader back under its own.
SELECT set_config('leader_election.fence', '"epoch column"=' || :old, false) <> '' AS set;
UPDATE ledger SET amount = 16 WHERE id = 1;
RESET leader_election.fence;
-- A statement that touches no row has no row to judge.
UPDATE ledger SET amount = 17 WHERE id = 1000;

-- DELETE and TRUNCATE need a presented token, whatever the rows say.
DELETE FROM ledger WHERE id = 1;
DELETE FROM ledger WHERE id = 1000;
TRUNCATE ledger;
SELECT set_config('leader_election.fence', '"epoch column"=' || :old, false) <> '' AS set;
DELETE FROM ledger WHERE id = 1;
TRUNCATE ledger;
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
DELETE FROM ledger WHERE id BETWEEN 10 AND 20 RETURNING id;
BEGIN;
TRUNCATE ledger;
SELECT count(*) FROM ledger;
ROLLBACK;
RESET leader_election.fence;
-- TRUNCATE of a table that it refers to, and of several together.
CREATE TABLE parent (id int PRIMARY KEY);
ALTER TABLE ledger ADD parent int REFERENCES parent;
TRUNCATE parent CASCADE;
TRUNCATE plain, ledger;
ALTER TABLE ledger DROP parent;
DROP TABLE parent;

-- A token that changes, or whose term ends, in the middle of a statement: each row
-- is judged by what is presented and current then.
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
INSERT INTO ledger SELECT 110 + n, length(CASE WHEN n = 2 THEN set_config('leader_election.fence', '"epoch column"=' || :old, true) END), NULL
FROM generate_series(1, 3) n;
INSERT INTO ledger SELECT 110 + n, length(CASE WHEN n = 2 THEN set_config('leader_election.fence', '', true) END), NULL
FROM generate_series(1, 3) n;
INSERT INTO ledger SELECT 110 + n, CASE WHEN n = 2 THEN leader_release('epoch column', :current)::int END, NULL
FROM generate_series(1, 3) n;
INSERT INTO ledger SELECT 110 + n, CASE WHEN n = 2 THEN leader_release('epoch column', :current)::int END, :current
FROM generate_series(1, 3) n;
RESET leader_election.fence;
SELECT leader_check('epoch column', :current), count(*) FROM rows WHERE id > 110;

-- ON CONFLICT.  Both the row that is proposed and the one that is stored.
INSERT INTO ledger VALUES (1, 20, :old) ON CONFLICT (id) DO UPDATE SET amount = 20;
INSERT INTO ledger VALUES (1, 20, NULL) ON CONFLICT (id) DO UPDATE SET amount = 20;
INSERT INTO ledger VALUES (1, 20, :current) ON CONFLICT (id) DO UPDATE SET amount = 20, fence_epoch = :old;
-- The stored row would keep its epoch: no claim, and nothing is presented.
INSERT INTO ledger VALUES (1, 20, :current) ON CONFLICT (id) DO UPDATE SET amount = 20;
INSERT INTO ledger VALUES (1, 20, :old) ON CONFLICT (id) DO NOTHING;
INSERT INTO ledger VALUES (1, 20, NULL) ON CONFLICT (id) DO NOTHING;
INSERT INTO ledger VALUES (1, 20, :current) ON CONFLICT (id) DO NOTHING;
SELECT * FROM rows WHERE id = 1;
BEGIN;
SELECT leader_fence('epoch column', :current);
INSERT INTO ledger VALUES (1, 21, NULL) ON CONFLICT (id) DO UPDATE SET amount = excluded.amount
RETURNING amount, fence_epoch = :current AS stamped;
INSERT INTO ledger VALUES (1, 22, :current) ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, fence_epoch = excluded.fence_epoch
RETURNING amount, fence_epoch = :current AS stamped;
INSERT INTO ledger VALUES (30, 23, NULL) ON CONFLICT (id) DO UPDATE SET amount = 0
RETURNING amount, fence_epoch = :current AS stamped;
COMMIT;

-- MERGE: each arm that acts.
INSERT INTO plain VALUES (1, 40), (31, 41), (30, 42);
MERGE INTO ledger l USING plain p ON l.id = p.id
WHEN MATCHED AND p.id = 30 THEN DELETE
WHEN MATCHED THEN UPDATE SET amount = p.amount
WHEN NOT MATCHED THEN INSERT VALUES (p.id, p.amount, NULL);
MERGE INTO ledger l USING (SELECT * FROM plain WHERE id = 31) p ON l.id = p.id
WHEN NOT MATCHED THEN INSERT VALUES (p.id, p.amount, NULL);
MERGE INTO ledger l USING (SELECT * FROM plain WHERE id = 1) p ON l.id = p.id
WHEN MATCHED THEN UPDATE SET amount = p.amount;
MERGE INTO ledger l USING (SELECT * FROM plain WHERE id = 30) p ON l.id = p.id
WHEN MATCHED THEN DELETE;
MERGE INTO ledger l USING plain p ON l.id = p.id
WHEN MATCHED THEN DO NOTHING;
BEGIN;
SELECT leader_fence('epoch column', :current);
MERGE INTO ledger l USING plain p ON l.id = p.id
WHEN MATCHED AND p.id = 30 THEN DELETE
WHEN MATCHED THEN UPDATE SET amount = p.amount
WHEN NOT MATCHED THEN INSERT VALUES (p.id, p.amount, NULL);
COMMIT;
SELECT * FROM rows WHERE id IN (1, 30, 31);

-- COPY.
COPY ledger (id, amount) FROM stdin;
50	1
\.
COPY ledger FROM stdin;
50	1	1
\.
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
COPY ledger (id, amount) FROM stdin;
51	1
52	2
\.
COPY ledger FROM stdin;
53	1	\N
54	1	1
\.
RESET leader_election.fence;
SELECT * FROM rows WHERE id BETWEEN 50 AND 59;

-- Statements that hide the write: a CTE, a function, a view, a rule, a cascade.
WITH w AS (INSERT INTO ledger VALUES (60, 1, NULL) RETURNING id) SELECT * FROM w;
WITH w AS (DELETE FROM ledger WHERE id = 1 RETURNING id) SELECT * FROM w;
CREATE VIEW ledger_view AS SELECT * FROM ledger;
INSERT INTO ledger_view VALUES (60, 1, NULL);
UPDATE ledger_view SET amount = 0;
DELETE FROM ledger_view;
DROP VIEW ledger_view;
CREATE RULE r AS ON INSERT TO plain DO ALSO INSERT INTO ledger VALUES (NEW.id, NEW.amount, NULL);
INSERT INTO plain VALUES (60, 1);
DROP RULE r ON plain;
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1);
CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, fence_epoch bigint);
INSERT INTO child VALUES (1);
SELECT leader_protect('child', 'epoch column', 'fence_epoch');
DELETE FROM parent;
UPDATE parent SET id = 2;
BEGIN;
SELECT leader_fence('epoch column', :current);
UPDATE parent SET id = 2;
COMMIT;
SELECT id, fence_epoch = :current AS stamped FROM child;
DROP TABLE child, parent;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM ledger WHERE id = 1 FOR UPDATE;
MOVE c;
SAVEPOINT s;
UPDATE ledger SET amount = 0 WHERE CURRENT OF c;
ROLLBACK TO s;
DELETE FROM ledger WHERE CURRENT OF c;
COMMIT;

-- The fence must judge the row that is stored, so it must be the last trigger
-- that fires before it.  One whose name sorts before is welcome.
CREATE FUNCTION tamper() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
	NEW.fence_epoch := 1;
	RETURN NEW;
END $$;
CREATE TRIGGER aaa BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
INSERT INTO ledger VALUES (70, 1, :current);
DROP TRIGGER aaa ON ledger;
INSERT INTO ledger VALUES (70, 1, :current);
\set VERBOSITY default
-- One that sorts behind is refused at the first write,
CREATE TRIGGER "~~z" BEFORE INSERT OR UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
INSERT INTO ledger VALUES (71, 1, :current);
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
UPDATE ledger SET amount = 0;
COPY ledger FROM stdin;
71	1	\N
\.
-- also when it was there before, or came by another name.
DROP TRIGGER "~~z" ON ledger;
INSERT INTO ledger VALUES (71, 1, :current);
CREATE TRIGGER b BEFORE UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
UPDATE ledger SET amount = 0 WHERE id = 71;
ALTER TRIGGER b ON ledger RENAME TO "~~~";
UPDATE ledger SET amount = 0 WHERE id = 71;
INSERT INTO ledger VALUES (72, 1, :current);
-- Harmless: disabled, for statements, after the row, for DELETE only.
ALTER TABLE ledger DISABLE TRIGGER "~~~";
INSERT INTO ledger VALUES (72, 1, :current);
DROP TRIGGER "~~~" ON ledger;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END $$;
CREATE TRIGGER "~~~1" BEFORE INSERT ON ledger FOR EACH STATEMENT EXECUTE FUNCTION nothing();
CREATE TRIGGER "~~~2" AFTER INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION nothing();
CREATE TRIGGER "~~~3" BEFORE DELETE ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
INSERT INTO ledger VALUES (73, 1, :current);
DELETE FROM ledger WHERE id = 73;
SELECT by, count(*) FROM rows GROUP BY by;
-- At leader_protect() it is refused at once.
SELECT leader_unprotect('ledger');
CREATE TRIGGER "~~z" BEFORE INSERT OR UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
\set VERBOSITY default
SELECT leader_protect('ledger', 'epoch column', 'fence_epoch');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
SELECT tgname FROM pg_trigger WHERE tgrelid = 'ledger'::regclass AND tgname LIKE '%fence%';
-- Without an epoch column no row is judged, so it does no harm.
SELECT leader_protect('ledger', 'epoch column');
INSERT INTO ledger VALUES (74, 1, :current);
SELECT leader_unprotect('ledger');
DROP TRIGGER "~~z" ON ledger;
SELECT leader_protect('ledger', 'epoch column', 'fence_epoch');

-- The column is gone, renamed or changed: no write passes unjudged.
RESET leader_election.fence;
ALTER TABLE ledger RENAME fence_epoch TO e;
INSERT INTO ledger VALUES (80, 1, :current);
ALTER TABLE ledger RENAME e TO fence_epoch;
INSERT INTO ledger VALUES (80, 1, :current);
DROP VIEW rows;
ALTER TABLE ledger ALTER fence_epoch TYPE numeric;
INSERT INTO ledger VALUES (81, 1, :current);
ALTER TABLE ledger DROP fence_epoch;
INSERT INTO ledger VALUES (81, 1);
ALTER TABLE ledger ADD fence_epoch bigint;
INSERT INTO ledger VALUES (81, 1, :current);
INSERT INTO ledger VALUES (82, 1, :old);
SELECT id, fence_epoch = :current AS current FROM ledger WHERE id IN (80, 81) ORDER BY id;
-- A default that stands in the catalog and not in the rows is what they hold.
ALTER TABLE ledger DROP fence_epoch;
ALTER TABLE ledger ADD fence_epoch bigint DEFAULT 7;
UPDATE ledger SET amount = 1 WHERE id = 80;
UPDATE ledger SET amount = 1, fence_epoch = 7 WHERE id = 80;
UPDATE ledger SET amount = 1, fence_epoch = :current WHERE id = 80;
INSERT INTO ledger VALUES (82, 1);
ALTER TABLE ledger ALTER fence_epoch DROP DEFAULT;

-- The switch for maintenance: nothing is judged, and nothing is stamped.
SET leader_election.enforce = off;
INSERT INTO ledger VALUES (90, 1, 1), (91, 1, NULL);
UPDATE ledger SET amount = 2 WHERE id = 90;
DELETE FROM ledger WHERE id = 81;
SELECT id, amount, fence_epoch FROM ledger WHERE id BETWEEN 90 AND 99 ORDER BY id;
-- Not even whether the table is still as the fence needs it: that is what has to
-- be mended.
ALTER TABLE ledger RENAME fence_epoch TO e;
INSERT INTO ledger VALUES (93, 1, 1);
UPDATE ledger SET amount = 2 WHERE id = 93;
DELETE FROM ledger WHERE id = 93 RETURNING amount, e;
ALTER TABLE ledger RENAME e TO fence_epoch;
CREATE TRIGGER "~~~later" BEFORE INSERT OR UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION tamper();
INSERT INTO ledger VALUES (94, 1, 1);
UPDATE ledger SET amount = 2 WHERE id = 94;
DROP TRIGGER "~~~later" ON ledger;
DELETE FROM ledger WHERE id = 94 RETURNING amount, fence_epoch;
TRUNCATE ledger;
RESET leader_election.enforce;
INSERT INTO ledger VALUES (92, 1, 1);
CREATE ROLE regress_le_writer;
GRANT ALL ON ledger TO regress_le_writer;
SET ROLE regress_le_writer;
SET leader_election.enforce = off;
INSERT INTO ledger VALUES (92, 1, 1);
RESET ROLE;
SHOW leader_election.enforce;

-- Many rows: one judgement serves them all, and each new epoch is judged anew.
SELECT set_config('leader_election.fence', '"epoch column"=' || :current, false) <> '' AS set;
INSERT INTO ledger SELECT n, 1, CASE WHEN n % 2 = 0 THEN :current END FROM generate_series(1, 10000) n;
INSERT INTO ledger SELECT n, 1, CASE WHEN n = 20000 THEN :old ELSE :current END FROM generate_series(10001, 20000) n;
SELECT count(*), count(*) FILTER (WHERE fence_epoch = :current) AS current FROM ledger;
UPDATE ledger SET amount = 2;
DELETE FROM ledger WHERE id > 9990;
SELECT count(*), min(amount), max(amount) FROM ledger;
RESET leader_election.fence;

DROP TABLE ledger, plain;
DROP FUNCTION tamper, nothing;
DROP ROLE regress_le_writer;
