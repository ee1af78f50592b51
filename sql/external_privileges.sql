--
-- Who may protect a table, and who may write to a protected one.  Guards that
-- protecting takes the table's owner and membership in the election's owner; that
-- a writer needs rights on the table and a token, and none on the extension's own
-- tables, by whichever way the token or the write comes; and that nobody raises
-- the mark of an external election without membership in its owner, whoever the
-- server lets the write be done as.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_owner, regress_le_member, regress_le_noinherit, regress_le_table, regress_le_both, regress_le_writer;
RESET client_min_messages;

CREATE ROLE regress_le_owner;
CREATE ROLE regress_le_member;
CREATE ROLE regress_le_noinherit NOINHERIT;
CREATE ROLE regress_le_table;
CREATE ROLE regress_le_both;
CREATE ROLE regress_le_writer;
GRANT regress_le_owner TO regress_le_member, regress_le_both;
GRANT regress_le_owner, regress_le_table TO regress_le_noinherit;
GRANT regress_le_table TO regress_le_both;
CREATE SCHEMA priv;
GRANT ALL ON SCHEMA priv TO PUBLIC;

-- A statement as somebody, and how it ended; the current epoch is @.
CREATE TABLE current (epoch bigint);
CREATE FUNCTION attempt(as_role name, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e text := (SELECT epoch FROM current);
	answer text := 'fine';
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', as_role);
	BEGIN
		EXECUTE replace(command, '@', e);
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE || ' ' || replace(SQLERRM, e, '@');
	END;
	RESET ROLE;
	RETURN answer;
END $$;
-- The same with a token presented by the setting
CREATE FUNCTION attempt(as_role name, token text, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e text := (SELECT epoch FROM current);
	answer text;
BEGIN
	PERFORM set_config('leader_election.fence', replace(token, '@', e), true);
	answer := attempt(as_role, command);
	PERFORM set_config('leader_election.fence', '', true);
	RETURN answer;
END $$;
CREATE VIEW roles AS SELECT role, n
FROM unnest('{regress_le_owner,regress_le_member,regress_le_noinherit,regress_le_table,regress_le_both,regress_le_writer}'::name[]) WITH ORDINALITY AS r(role, n);

SET ROLE regress_le_owner;
SELECT epoch AS current FROM leader_acquire('priv', 'h', '1 h') \gset
RESET ROLE;
INSERT INTO current VALUES (:current);
SET ROLE regress_le_table;
CREATE TABLE priv.book (id int);
CREATE TABLE priv.parted (id int, fence_epoch bigint) PARTITION BY LIST (id);
CREATE TABLE priv.parted_1 PARTITION OF priv.parted FOR VALUES IN (1);
RESET ROLE;

--
-- Who may protect
--

-- The table's owner who is a member of the election's owner as well.  Each
-- attempt is undone.
CREATE FUNCTION try_protect(as_role name, relation text, election text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text := attempt(as_role, format('SELECT leader_protect(%L, %L)', relation, election));
BEGIN
	IF answer = 'fine' THEN
		PERFORM leader_unprotect(relation);
	END IF;
	RETURN answer;
END $$;
SELECT role, try_protect(role, 'priv.book', 'priv') FROM roles ORDER BY n;
SELECT role, try_protect(role, 'priv.parted', 'priv') FROM roles ORDER BY n;
-- While nobody owns the election, the table's owner is enough; and for a name
-- that is known only with the row.
SELECT role, try_protect(role, 'priv.book', 'priv unborn'), try_protect(role, 'priv.book', 'priv {id}') FROM roles ORDER BY n;
-- It creates none.
SELECT count(*) FROM leader_status WHERE election LIKE 'priv %';
-- NOINHERIT members must take each role, and have one at a time.
SET SESSION AUTHORIZATION regress_le_noinherit;
SELECT leader_protect('priv.book', 'priv');
SET ROLE regress_le_owner;
SELECT leader_protect('priv.book', 'priv');
SET ROLE regress_le_table;
SELECT leader_protect('priv.book', 'priv');
SELECT leader_protect('priv.book', 'priv unborn');
SELECT leader_unprotect('priv.book');
RESET SESSION AUTHORIZATION;
-- A SECURITY DEFINER function protects as its owner.
CREATE FUNCTION priv.lend_protect() RETURNS void SECURITY DEFINER LANGUAGE sql AS $$SELECT leader_protect('priv.book', 'priv')$$;
CREATE FUNCTION priv.lend_unprotect() RETURNS void SECURITY DEFINER LANGUAGE sql AS $$SELECT leader_unprotect('priv.book')$$;
ALTER FUNCTION priv.lend_protect OWNER TO regress_le_both;
ALTER FUNCTION priv.lend_unprotect OWNER TO regress_le_both;
SELECT attempt('regress_le_writer', 'SELECT priv.lend_protect()'), attempt('regress_le_writer', 'SELECT leader_unprotect(''priv.book'')');
SELECT attempt('regress_le_writer', 'SELECT priv.lend_unprotect()');
ALTER FUNCTION priv.lend_protect OWNER TO regress_le_writer;
SELECT attempt('regress_le_both', 'SELECT priv.lend_protect()');
-- A partition that belongs to somebody else is not protected with its parent.
ALTER TABLE priv.parted_1 OWNER TO regress_le_writer;
SELECT role, try_protect(role, 'priv.parted', 'priv') FROM roles ORDER BY n;
ALTER TABLE priv.parted_1 OWNER TO regress_le_table;
-- To undo it takes the table's owner only: whoever may drop the table may do that.
SELECT leader_protect('priv.book', 'priv');
SELECT role, attempt(role, 'SELECT leader_unprotect(''priv.book'')') FROM roles WHERE role <> 'regress_le_table' AND role <> 'regress_le_both' ORDER BY n;
SELECT attempt('regress_le_table', 'SELECT leader_unprotect(''priv.book'')');
-- The functions can be taken away like any others.
BEGIN;
REVOKE EXECUTE ON FUNCTION leader_protect FROM PUBLIC;
SELECT attempt('regress_le_both', 'SELECT leader_protect(''priv.book'', ''priv'')');
ROLLBACK;

--
-- Who may write
--

-- Nobody but the extension's owner has rights on its tables.
SELECT c.relname, role, has_table_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
FROM roles, pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension x ON x.oid = d.refobjid AND x.extname = 'leader_election'
WHERE c.relkind = 'r' AND role IN ('regress_le_writer', 'regress_le_owner')
ORDER BY c.relname COLLATE "C", n;
CREATE TABLE priv.ledger (id int, fence_epoch bigint);
CREATE TABLE priv.shards (shard text, id int, fence_epoch bigint);
CREATE TABLE priv.parent (id int);
CREATE TABLE priv.child () INHERITS (priv.parent);
GRANT ALL ON priv.book, priv.ledger, priv.shards, priv.parted, priv.parted_1, priv.parent TO regress_le_writer;
SELECT leader_protect('priv.book', 'priv'), leader_protect('priv.ledger', 'priv', 'fence_epoch'),
       leader_protect('priv.shards', '{shard}', 'fence_epoch'), leader_protect('priv.parted', 'priv', 'fence_epoch'),
       leader_protect('priv.parent', 'priv');
SELECT w.command, attempt('regress_le_writer', w.command) AS bare, attempt('regress_le_writer', 'priv=@', w.command) AS with_setting,
       attempt('regress_le_writer', 'priv=1', w.command) AS stale
FROM unnest('{
	"INSERT INTO priv.book VALUES (1)",
	"UPDATE priv.book SET id = 2",
	"DELETE FROM priv.book",
	"TRUNCATE priv.book",
	"INSERT INTO priv.ledger VALUES (1, @)",
	"INSERT INTO priv.ledger VALUES (2, NULL)",
	"INSERT INTO priv.ledger VALUES (3, 1)",
	"UPDATE priv.ledger SET id = id + 10",
	"MERGE INTO priv.ledger l USING (VALUES (11)) v (id) ON l.id = v.id WHEN MATCHED THEN DELETE",
	"INSERT INTO priv.shards VALUES (''priv'', 1, @)",
	"INSERT INTO priv.shards VALUES (''priv'', 2, NULL)",
	"INSERT INTO priv.shards VALUES (''priv other'', 3, @)",
	"UPDATE priv.shards SET id = 4",
	"DELETE FROM priv.shards",
	"INSERT INTO priv.parted VALUES (1, @)",
	"INSERT INTO priv.parted VALUES (1, NULL)",
	"INSERT INTO priv.parted_1 VALUES (1, @)",
	"UPDATE priv.parted SET id = 1",
	"TRUNCATE priv.parted_1",
	"INSERT INTO priv.parent VALUES (1)",
	"DELETE FROM priv.parent"
}'::text[]) WITH ORDINALITY AS w(command, n) ORDER BY n;
-- Rights on functions of the extension are not needed either: the server asks for
-- them when a trigger is made.
BEGIN;
REVOKE EXECUTE ON FUNCTION leader_fence_check, leader_fence FROM PUBLIC;
SELECT attempt('regress_le_writer', 'SELECT leader_fence(''priv'', @)');
SELECT attempt('regress_le_writer', 'priv=@', 'INSERT INTO priv.book VALUES (5)'), attempt('regress_le_writer', 'INSERT INTO priv.ledger VALUES (5, @)'),
       attempt('regress_le_writer', 'priv=1', 'INSERT INTO priv.book VALUES (5)');
ROLLBACK;
-- leader_fence() asks for membership, the others do not; without rights on the table
-- no token helps.
SELECT role, attempt(role, 'SELECT leader_fence(''priv'', @)') AS fence, attempt(role, 'priv=@', 'INSERT INTO priv.book VALUES (3)') AS insert
FROM roles ORDER BY n;
-- A view, and a function, write as their owner; the token is the caller's.
CREATE VIEW priv.book_view AS SELECT * FROM priv.book;
CREATE FUNCTION priv.write() RETURNS void SECURITY DEFINER LANGUAGE sql AS 'INSERT INTO priv.book VALUES (4)';
CREATE FUNCTION priv.write_as_caller() RETURNS void LANGUAGE sql AS 'INSERT INTO priv.book VALUES (4)';
ALTER FUNCTION priv.write OWNER TO regress_le_table;
ALTER VIEW priv.book_view OWNER TO regress_le_table;
GRANT ALL ON priv.book_view TO PUBLIC;
SELECT w.command, attempt('regress_le_member', w.command) AS bare, attempt('regress_le_member', 'priv=@', w.command) AS with_setting,
       attempt('regress_le_member', 'priv=1', w.command) AS stale
FROM unnest('{
	"INSERT INTO priv.book_view VALUES (1)",
	"DELETE FROM priv.book_view",
	"SELECT priv.write()",
	"SELECT priv.write_as_caller()",
	"DO $d$BEGIN PERFORM leader_fence(''priv'', @), priv.write(); END$d$"
}'::text[]) WITH ORDINALITY AS w(command, n) ORDER BY n;
-- So does a foreign key's action, with the table's owner's rights: none on ours.
SET ROLE regress_le_table;
CREATE TABLE priv.orders (id int PRIMARY KEY);
CREATE TABLE priv.lines (order_id int REFERENCES priv.orders ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE priv.notes (order_id int REFERENCES priv.orders ON DELETE SET NULL, fence_epoch bigint);
GRANT ALL ON priv.orders TO regress_le_writer;
INSERT INTO priv.orders VALUES (1), (2), (3);
INSERT INTO priv.lines VALUES (1), (2);
INSERT INTO priv.notes VALUES (1), (3);
RESET ROLE;
SELECT leader_protect('priv.lines', 'priv'), leader_protect('priv.notes', 'priv', 'fence_epoch');
SELECT w.command, attempt('regress_le_writer', w.command) AS bare, attempt('regress_le_writer', 'priv=1', w.command) AS stale,
       attempt('regress_le_writer', 'priv=@', w.command) AS with_setting
FROM unnest('{
	"UPDATE priv.orders SET id = 12 WHERE id = 2",
	"DELETE FROM priv.orders WHERE id = 1",
	"DELETE FROM priv.orders WHERE id = 3"
}'::text[]) WITH ORDINALITY AS w(command, n) ORDER BY n;
SELECT * FROM priv.lines ORDER BY 1;
SELECT order_id, fence_epoch = :current AS stamped FROM priv.notes ORDER BY 1;

--
-- Whose token it is: a higher one of an external election takes a member
--

SET ROLE regress_le_owner;
SELECT leader_configure('priv external', external => true);
SELECT leader_fence('priv external', 10);
RESET ROLE;
CREATE TABLE priv.entries (id int, fence_epoch bigint);
GRANT ALL ON priv.entries TO PUBLIC;
SELECT leader_protect('priv.entries', 'priv external', 'fence_epoch');
CREATE FUNCTION mark() RETURNS bigint LANGUAGE sql AS $$SELECT epoch FROM leader_status WHERE election = 'priv external'$$;
-- An attempt is a transaction of its own.
SELECT attempt('regress_le_writer', 'INSERT INTO priv.entries VALUES (1, 11)'), attempt('regress_le_writer', '"priv external"=11', 'INSERT INTO priv.entries VALUES (1, NULL)'),
       attempt('regress_le_writer', 'SELECT leader_fence(''priv external'', 11)');
SELECT attempt('regress_le_noinherit', 'INSERT INTO priv.entries VALUES (1, 11)'), attempt('regress_le_table', 'INSERT INTO priv.entries VALUES (1, 11)');
SELECT mark();
SELECT attempt('regress_le_writer', '"priv external"=10', 'INSERT INTO priv.entries VALUES (1, NULL)'), attempt('regress_le_writer', 'INSERT INTO priv.entries VALUES (1, 10)');
SELECT mark();
SELECT attempt('regress_le_member', 'INSERT INTO priv.entries VALUES (1, 11)');
SELECT mark();
SELECT attempt('regress_le_both', '"priv external"=12', 'INSERT INTO priv.entries VALUES (1, NULL)');
SELECT mark();
SET SESSION AUTHORIZATION regress_le_noinherit;
SET ROLE regress_le_owner;
INSERT INTO priv.entries VALUES (1, 13);
RESET SESSION AUTHORIZATION;
SELECT mark();
-- A SECURITY DEFINER function lends its owner's membership to a token that it
-- presents itself.
CREATE FUNCTION priv.lend_fence(token bigint) RETURNS void SECURITY DEFINER LANGUAGE sql AS $$SELECT leader_fence('priv external', token)$$;
CREATE FUNCTION priv.lend_write(token bigint) RETURNS void SECURITY DEFINER LANGUAGE sql AS $$INSERT INTO priv.entries VALUES (2, token)$$;
ALTER FUNCTION priv.lend_fence OWNER TO regress_le_member;
ALTER FUNCTION priv.lend_write OWNER TO regress_le_member;
SELECT attempt('regress_le_writer', 'SELECT priv.lend_fence(14)');
SELECT attempt('regress_le_writer', 'SELECT priv.lend_write(15)');
SELECT mark();
ALTER FUNCTION priv.lend_fence OWNER TO regress_le_writer;
SELECT attempt('regress_le_member', 'SELECT priv.lend_fence(16)');
SELECT mark();
-- Not to one that the caller has set: neither such a function, nor the action of a
-- foreign key, which is done as the owner of the table, makes it a member's.
SELECT attempt('regress_le_writer', '"priv external"=20', 'SELECT priv.lend_write(NULL)');
SELECT mark();
SELECT leader_unprotect('priv.lines'), leader_unprotect('priv.notes');
ALTER TABLE priv.lines OWNER TO regress_le_member;
ALTER TABLE priv.notes OWNER TO regress_le_member;
SELECT leader_protect('priv.lines', 'priv external'), leader_protect('priv.notes', 'priv external', 'fence_epoch');
SET leader_election.fence = '"priv external"=15';
INSERT INTO priv.orders VALUES (20), (21), (22);
INSERT INTO priv.lines VALUES (20), (21);
INSERT INTO priv.notes VALUES (22);
RESET leader_election.fence;
GRANT SELECT ON priv.orders TO regress_le_member;
SELECT attempt('regress_le_writer', '"priv external"=20', 'DELETE FROM priv.orders WHERE id = 20');
SELECT attempt('regress_le_writer', '"priv external"=20', 'UPDATE priv.orders SET id = 30 WHERE id = 20');
SELECT attempt('regress_le_writer', '"priv external"=20', 'DELETE FROM priv.orders WHERE id = 22');
SELECT mark();
-- The mark as it is passes that way, and a member's own token.
SELECT attempt('regress_le_writer', '"priv external"=15', 'DELETE FROM priv.orders WHERE id = 20');
GRANT ALL ON priv.orders TO regress_le_member;
SELECT attempt('regress_le_member', '"priv external"=16', 'DELETE FROM priv.orders WHERE id = 21');
SELECT mark();

SET client_min_messages = warning;
DROP SCHEMA priv CASCADE;
RESET client_min_messages;
DROP FUNCTION attempt(name, text), attempt(name, text, text), try_protect, mark;
DROP VIEW roles;
DROP TABLE current;
DROP ROLE regress_le_owner, regress_le_member, regress_le_noinherit, regress_le_table, regress_le_both, regress_le_writer;
