--
-- Who may do what.  Guards that membership in an election's owner decides about
-- its terms, rights on a table about its writes, and that what an election says
-- is told to nobody else.
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_owner, regress_le_member, regress_le_noinherit, regress_le_stranger, regress_le_monitor, regress_le_writer;
RESET client_min_messages;

CREATE ROLE regress_le_owner;
CREATE ROLE regress_le_member;
CREATE ROLE regress_le_noinherit NOINHERIT;
CREATE ROLE regress_le_stranger;
CREATE ROLE regress_le_monitor;
CREATE ROLE regress_le_writer;
GRANT regress_le_owner TO regress_le_member, regress_le_noinherit;
GRANT pg_read_all_stats TO regress_le_monitor;
-- Some call as somebody, and how it ended.
CREATE FUNCTION call(as_role name, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	epoch text := (SELECT s.epoch FROM leader_status s WHERE s.election = 'privileges');
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', as_role);
	BEGIN
		EXECUTE 'SELECT ' || replace(command, '@', epoch) INTO answer;
		answer := 'answer ' || coalesce(nullif(answer, ''), 'none');
	EXCEPTION WHEN OTHERS THEN
		answer := SQLSTATE || ' ' || replace(SQLERRM, epoch, '@');
	END;
	RESET ROLE;
	RETURN answer;
END $$;

-- Whoever wins an election first owns it.
SET ROLE regress_le_owner;
SELECT is_leader FROM leader_acquire('privileges', 'h', '1 h', metadata => '{"secret": 1}');
RESET ROLE;
SELECT owner FROM leader_status WHERE election = 'privileges';

-- Members may do everything, strangers and writers nothing.  NOINHERIT members
-- must first take the role.
SELECT role, command, call(role, command)
FROM unnest('{regress_le_member,regress_le_noinherit,regress_le_stranger,regress_le_monitor}'::name[]) WITH ORDINALITY AS r(role, n),
     unnest('{
	"is_leader FROM leader_acquire(''privileges'', ''h'', ''1 h'')",
	"is_leader FROM leader_acquire(''privileges'', ''other'', ''1 h'')",
	"is_leader FROM leader_renew(''privileges'', @)",
	"is_leader FROM leader_renew(''privileges'', 1)",
	"leader_check(''privileges'', @)",
	"leader_check(''privileges'', 1)",
	"leader_fence(''privileges'', @)",
	"leader_fence(''privileges'', 1)",
	"leader_set_metadata(''privileges'', @, ''{\"secret\": 1}'')",
	"leader_set_metadata(''privileges'', 1, NULL)",
	"count(*) FROM leader_renew_all(''h'') WHERE election = ''privileges''",
	"leader_release(''privileges'', 1)"
}'::text[]) WITH ORDINALITY AS c(command, m)
ORDER BY n, m;
SELECT call('regress_le_stranger', 'leader_release(''privileges'', @)');
SELECT state FROM leader_status WHERE election = 'privileges';
-- In these words.
SET ROLE regress_le_stranger;
SELECT is_leader FROM leader_acquire('privileges', 'h', '1 h');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;

-- A superuser always may.
SELECT is_leader FROM leader_acquire('privileges', 'h', '1 h');

-- The view tells strangers that an election exists, and no more.
SET ROLE regress_le_stranger;
SELECT * FROM leader_status WHERE election = 'privileges' \gx
SET ROLE regress_le_noinherit;
SELECT count(*), count(leader), count(epoch), count(metadata) FROM leader_status WHERE election = 'privileges';
SET ROLE regress_le_member;
SELECT leader, epoch > 0 AS epoch, kind, state, paused, ttl, expires_in > '50 min' AS expires_in,
       acquired_at IS NOT NULL AS acquired_at, metadata, owner, terms, pid
FROM leader_status WHERE election = 'privileges' \gx
SET ROLE regress_le_monitor;
SELECT leader, epoch > 0 AS epoch, kind, state, paused, ttl, expires_in > '50 min' AS expires_in,
       acquired_at IS NOT NULL AS acquired_at, metadata, owner, terms, pid
FROM leader_status WHERE election = 'privileges' \gx
RESET ROLE;

-- An election is created by whoever has USAGE on the epoch counter.
SELECT call('regress_le_stranger', 'is_leader FROM leader_acquire(''privileges stranger'', ''h'', ''1 h'')');
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM PUBLIC;
SELECT call('regress_le_stranger', 'is_leader FROM leader_acquire(''privileges new'', ''h'', ''1 h'')');
SET ROLE regress_le_stranger;
SELECT is_leader FROM leader_acquire('privileges new', 'h', '1 h');
RESET ROLE;
SELECT count(*) FROM leader_status WHERE election = 'privileges new';
-- One that exists needs none: neither its next term nor its renewal.
SELECT call('regress_le_member', 'leader_release(''privileges'', @)');
SELECT call('regress_le_member', 'is_leader FROM leader_acquire(''privileges'', ''h'', ''1 h'')');
SELECT owner FROM leader_status WHERE election = 'privileges';
GRANT USAGE ON SEQUENCE leader_election_epoch TO regress_le_stranger;
SELECT call('regress_le_stranger', 'is_leader FROM leader_acquire(''privileges new'', ''h'', ''1 h'')');
REVOKE USAGE ON SEQUENCE leader_election_epoch FROM regress_le_stranger;
GRANT USAGE ON SEQUENCE leader_election_epoch TO PUBLIC;
-- USAGE does not let anybody draw or set it by hand.
SELECT call('regress_le_stranger', 'setval(''leader_election_epoch'', 1)');
SELECT call('regress_le_stranger', 'last_value > 0 FROM leader_election_epoch');
SELECT call('regress_le_stranger', 'nextval(''leader_election_epoch_identity'')');
SELECT call('regress_le_stranger', 'setval(''leader_election_epoch_drawn_at'', 1)');

-- The tables are out of reach, also for members.
\set VERBOSITY sqlstate
SET ROLE regress_le_member;
SELECT * FROM leader_election_state;
SELECT * FROM leader_election_metadata;
UPDATE leader_election_state SET holder = 'me';
DELETE FROM leader_election_state;
INSERT INTO leader_election_metadata VALUES ('privileges', 1, '{}');
TRUNCATE leader_election_state;
BEGIN;
LOCK TABLE leader_election_state IN ACCESS SHARE MODE;
ROLLBACK;
SET leader_election.enforce = off;
SET leader_election.max_elections = 1;
SET leader_election.require_sync_standby = off;
RESET ROLE;

-- Writing to a protected table takes rights on that table, and a token.
CREATE TABLE ledger (id int, fence_epoch bigint);
CREATE TABLE book (id int);
GRANT ALL ON ledger, book TO regress_le_writer;
SELECT leader_protect('ledger', 'privileges', 'fence_epoch'), leader_protect('book', 'privileges');
SELECT epoch AS current FROM leader_status WHERE election = 'privileges' \gset
SET ROLE regress_le_writer;
INSERT INTO ledger VALUES (1, :current);
INSERT INTO ledger VALUES (2, NULL);
INSERT INTO book VALUES (1);
SELECT set_config('leader_election.fence', 'privileges=' || :current, false) <> '' AS set;
INSERT INTO ledger VALUES (3, NULL);
INSERT INTO book VALUES (3);
RESET leader_election.fence;
SELECT leader_fence('privileges', :current);
RESET ROLE;
SET ROLE regress_le_stranger;
SELECT set_config('leader_election.fence', 'privileges=' || :current, false) <> '' AS set;
INSERT INTO ledger VALUES (4, :current);
INSERT INTO book VALUES (4);
RESET leader_election.fence;
RESET ROLE;
SELECT id FROM ledger ORDER BY id;
SELECT id FROM book ORDER BY id;
-- Row security on it changes nothing for the fence.
ALTER TABLE book ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON book USING (true);
SET ROLE regress_le_writer;
INSERT INTO book VALUES (5);
SELECT set_config('leader_election.fence', 'privileges=' || :current, false) <> '' AS set;
INSERT INTO book VALUES (5);
RESET leader_election.fence;
RESET ROLE;

-- A refused write tells the current epoch to those only who may see the election,
-- while somebody leads and when nobody does.
CREATE TABLE told (id int, fence_epoch bigint);
GRANT ALL ON told TO PUBLIC;
SELECT leader_protect('told', 'privileges told', 'fence_epoch');
SET ROLE regress_le_owner;
SELECT epoch AS told FROM leader_acquire('privileges told', 'h', '1 h') \gset
RESET ROLE;
CREATE FUNCTION told(as_role name, presented text, current text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', as_role);
	BEGIN
		EXECUTE 'INSERT INTO told VALUES (1, ' || presented || ')';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		detail := SQLSTATE || ' ' || replace(SQLERRM || ': ' || detail, current, '@');
	END;
	RESET ROLE;
	RETURN detail;
END $$;
CREATE VIEW tellings AS
SELECT n, role, m, presented
FROM unnest('{regress_le_member,regress_le_monitor,regress_le_noinherit,regress_le_stranger,regress_le_writer}'::name[]) WITH ORDINALITY AS r(role, n),
     unnest('{1,9007199254740991,"NULL"}'::text[]) WITH ORDINALITY AS p(presented, m);
SELECT role, told(role, presented, :'told') FROM tellings ORDER BY n, m;
SELECT leader_release('privileges told', :told);
SELECT role, told(role, presented, :'told') FROM tellings ORDER BY n, m;
DROP VIEW tellings;
DROP FUNCTION told;
DROP TABLE told;

-- Row security on the extension's own table hides nothing from it.
ALTER TABLE leader_election_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE leader_election_state FORCE ROW LEVEL SECURITY;
SELECT call('regress_le_member', 'is_leader FROM leader_acquire(''privileges'', ''other'', ''1 h'')'),
       call('regress_le_member', 'is_leader FROM leader_acquire(''privileges'', ''h'', ''1 h'')'),
       call('regress_le_member', 'leader_check(''privileges'', @)');
SELECT call('regress_le_member', 'leader_fence(''privileges'', @)'), call('regress_le_member', 'leader_fence(''privileges'', 1)');
ALTER TABLE leader_election_state NO FORCE ROW LEVEL SECURITY;
ALTER TABLE leader_election_state DISABLE ROW LEVEL SECURITY;

-- A SECURITY DEFINER function lends its owner's membership.
CREATE FUNCTION lend_renew(epoch bigint) RETURNS boolean SECURITY DEFINER SET search_path = public, pg_temp
LANGUAGE sql AS $$SELECT is_leader FROM leader_renew('privileges', epoch)$$;
CREATE FUNCTION lend_new() RETURNS boolean SECURITY DEFINER SET search_path = public, pg_temp
LANGUAGE sql AS $$SELECT is_leader FROM leader_acquire('privileges lent', 'h', '1 h')$$;
ALTER FUNCTION lend_renew OWNER TO regress_le_member;
ALTER FUNCTION lend_new OWNER TO regress_le_member;
SET ROLE regress_le_stranger;
SELECT lend_renew(:current);
SELECT lend_new();
SELECT is_leader FROM leader_renew('privileges', :current);
RESET ROLE;
SELECT owner FROM leader_status WHERE election = 'privileges lent';
-- One that belongs to a stranger takes a superuser's away.
ALTER FUNCTION lend_renew OWNER TO regress_le_stranger;
SELECT lend_renew(:current);
SELECT leader_check('privileges', :current);

-- Membership is asked at each call.
REVOKE regress_le_owner FROM regress_le_member;
SELECT call('regress_le_member', 'is_leader FROM leader_renew(''privileges'', @)');
GRANT regress_le_owner TO regress_le_member;
SELECT call('regress_le_member', 'is_leader FROM leader_renew(''privileges'', @)');

-- Renewing all: only what the caller may renew.
SET ROLE regress_le_member;
SELECT is_leader FROM leader_acquire('privileges member', 'h', '1 h');
SELECT election FROM leader_renew_all('h') WHERE election LIKE 'privileges%' ORDER BY election COLLATE "C";
SET ROLE regress_le_stranger;
SELECT election FROM leader_renew_all('h') WHERE election LIKE 'privileges%' ORDER BY election COLLATE "C";
RESET ROLE;

-- The number of elections is limited.
SET leader_election.max_elections = 0;
SET ROLE regress_le_stranger;
SELECT is_leader FROM leader_acquire('privileges too many', 'h', '1 h');
SELECT is_leader FROM leader_acquire('privileges new', 'h', '1 h');
RESET ROLE;
\set VERBOSITY default
SELECT is_leader FROM leader_acquire('privileges too many', 'h', '1 h');
\set VERBOSITY sqlstate
RESET leader_election.max_elections;
SELECT is_leader FROM leader_acquire('privileges too many', 'h', '1 h');

-- Functions can be taken away like any others.
BEGIN;
REVOKE EXECUTE ON FUNCTION leader_acquire FROM PUBLIC;
SET LOCAL ROLE regress_le_stranger;
SELECT is_leader FROM leader_acquire('privileges new', 'h', '1 h');
ROLLBACK;

-- An owner that no longer exists: superusers only.
DROP FUNCTION lend_renew, lend_new;
DROP ROLE regress_le_owner;
\set VERBOSITY default
SELECT call('regress_le_member', 'is_leader FROM leader_renew(''privileges'', @)'),
       call('regress_le_member', 'is_leader FROM leader_acquire(''privileges'', ''h'', ''1 h'')') \gx
SET ROLE regress_le_member;
SELECT owner FROM leader_status WHERE election = 'privileges';
RESET ROLE;
SELECT is_leader FROM leader_renew('privileges', :current);
SELECT owner FROM leader_status WHERE election = 'privileges';
-- A role of that name later is a member of itself.
CREATE ROLE regress_le_owner;
SELECT call('regress_le_owner', 'is_leader FROM leader_renew(''privileges'', @)');

DROP TABLE ledger, book;
DROP FUNCTION call;
DROP ROLE regress_le_owner, regress_le_member, regress_le_noinherit, regress_le_stranger, regress_le_monitor, regress_le_writer;
