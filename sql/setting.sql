--
-- Tokens presented through the setting leader_election.fence.  Guards its
-- grammar, where it may come from, and that a token in it is judged in every
-- transaction anew (P2).
--
-- What a run that broke off has left behind.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_le_setting;
RESET client_min_messages;

CREATE ROLE regress_le_setting;
CREATE TABLE setting (v text);
GRANT INSERT ON setting TO regress_le_setting;
SELECT leader_protect('setting', 'setting');
-- A write that tells how it ended.
CREATE FUNCTION put(value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO setting VALUES (value);
	RETURN 'written';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- The same for a value of the setting; "@" stands for the current epoch.
CREATE FUNCTION present(value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('leader_election.fence',
		replace(value, '@', (SELECT epoch::text FROM leader_status WHERE election = 'setting')), false);
	RETURN put(value);
EXCEPTION WHEN OTHERS THEN
	RETURN 'refused ' || SQLSTATE;
END $$;
SELECT epoch AS old FROM leader_acquire('setting', 'a', '1 h') \gset
SELECT leader_release('setting', :old);
SELECT epoch AS current FROM leader_acquire('setting', 'b', '1 h') \gset

-- Well formed.
SHOW leader_election.fence;
SELECT put('no token');
SELECT value, present(value)
FROM unnest(ARRAY[
	'setting=@',
	' setting = @ ',
	'"setting"=@',
	' "setting" = @',
	'setting=0@',
	'setting=@,other=1',
	'other=1,setting=@',
	'other=1 , setting=@ , third=3',
	'"o,t=h""er"=7, setting=@',
	'shard/7=43, setting=@',
	'Setting=@',
	'"setting "=@',
	'" setting"=@',
	'other=@',
	'setting=1',
	'',
	'   '
]) WITH ORDINALITY AS t(value, n) ORDER BY n;

-- Malformed: refused when it is set, and what was set before stays.
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
SELECT left(value, 40) AS value, present(value)
FROM unnest(ARRAY[
	'setting',
	'setting=',
	'=@',
	'=',
	',',
	'setting=@,',
	',setting=@',
	'setting=@,,other=1',
	'setting=@ other=1',
	'setting==@',
	'setting=@x',
	'setting=x',
	'setting=-1',
	'setting=+1',
	'setting=0',
	'setting=1.0',
	'setting=1e3',
	'setting=0x1',
	'setting=9007199254740992',
	'setting=18446744073709551617',
	'setting=99999999999999999999999999999999999999',
	'set ting=@',
	'"setting=@',
	'setting"=@',
	'"setting""=@',
	'"setting"x=@',
	'""=@',
	'setting=@,setting=@',
	'setting=@,setting=1',
	'setting=@,"setting"=1',
	repeat('x', 256) || '=@',
	'"' || repeat('x', 256) || '"=@',
	'setting=@;other=1',
	'{setting=@}'
]) WITH ORDINALITY AS t(value, n) ORDER BY n;
SELECT put('still what was set before');
-- The largest epoch there can be, and the longest name.
SELECT present('setting=9007199254740991');
SELECT present(repeat('x', 255) || '=1,setting=@');
-- All kinds of white space around names and numbers.
SELECT present(E'\tsetting\n=\r@\t');
-- In the words of the error.
SET leader_election.fence = 'setting=';
\echo :LAST_ERROR_SQLSTATE
SET leader_election.fence = 'a=1,a=2';
\echo :LAST_ERROR_SQLSTATE

-- No more tokens than can be read in no time.
CREATE FUNCTION present_many(tokens int, OUT outcome text, OUT detail text) LANGUAGE plpgsql AS $$
BEGIN
	outcome := present((SELECT string_agg('other' || i || '=1,', '') FROM generate_series(2, tokens) i) || 'setting=@');
	PERFORM set_config('leader_election.fence',
		(SELECT string_agg('other' || i || '=1', ',') FROM generate_series(1, tokens) i), true);
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
END $$;
SELECT tokens, p.* FROM unnest('{999,1000,1001,5000}'::int[]) tokens, present_many(tokens) p;
DROP FUNCTION present_many;
-- A quoted name reaches an election of that name.
CREATE TABLE setting_odd (v text);
SELECT epoch AS odd FROM leader_acquire('o,d=d "name" ', 'a', '1 h') \gset
SELECT leader_protect('setting_odd', 'o,d=d "name" ');
SELECT set_config('leader_election.fence', '"o,d=d ""name"" "=' || :odd, false) <> '' AS set;
INSERT INTO setting_odd VALUES ('quoted');
TABLE setting_odd;
RESET leader_election.fence;

-- Stale and never issued ones are judged at the write, not when they are set.
SELECT set_config('leader_election.fence', 'setting=' || :old, false) <> '' AS set;
SELECT put('stale');
SELECT set_config('leader_election.fence', 'setting=' || :current + 1000000000, false) <> '' AS set;
SELECT put('never issued');
SELECT set_config('leader_election.fence', 'unknown=' || :current, false) <> '' AS set;
SELECT put('of an unknown election');

-- SET LOCAL ends with the transaction, and leaves an empty string behind, which
-- means none.
RESET leader_election.fence;
BEGIN;
SELECT set_config('leader_election.fence', 'setting=' || :current, true) <> '' AS set;
SELECT put('set local');
COMMIT;
SELECT current_setting('leader_election.fence') = '' AS empty, put('after set local');
-- A savepoint restores what was before it.
BEGIN;
SELECT set_config('leader_election.fence', 'setting=' || :current, true) <> '' AS set;
SAVEPOINT s;
SET LOCAL leader_election.fence = '';
SELECT put('none in the savepoint');
ROLLBACK TO s;
SELECT put('restored by rollback to');
COMMIT;
-- SET in a transaction that is rolled back.
BEGIN;
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
ROLLBACK;
SELECT put('set was rolled back');
-- DISCARD ALL and RESET ALL leave no token to the next user of a pooled session.
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
RESET ALL;
SELECT put('after reset all');
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
DISCARD ALL;
SELECT put('after discard all');

-- Changed in the middle of a transaction: each write is judged by what is set
-- then.  A token that was used counts at commit, whatever was set later.
BEGIN;
SELECT put('mid: none yet');
SELECT set_config('leader_election.fence', 'setting=' || :current, true) <> '' AS set;
SELECT put('mid: current');
SELECT set_config('leader_election.fence', 'setting=' || :old, true) <> '' AS set;
SELECT put('mid: stale');
SET LOCAL leader_election.fence = '';
SELECT put('mid: none again');
SELECT set_config('leader_election.fence', 'setting=' || :current, true) <> '' AS set;
SELECT put('mid: current again');
COMMIT;

-- leader_fence() comes before the setting.
SELECT set_config('leader_election.fence', 'setting=' || :old, false) <> '' AS set;
BEGIN;
SELECT leader_fence('setting', :current);
SELECT put('leader_fence before a stale setting');
COMMIT;
SELECT put('the stale setting again');
RESET leader_election.fence;

-- A setting of the function that writes.
CREATE FUNCTION put_with_setting() RETURNS text LANGUAGE sql AS $$SELECT put('set by the function')$$;
-- Writes the current token into a command, which the output must not show.
CREATE FUNCTION run(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format(command, 'setting=' || (SELECT epoch FROM leader_status WHERE election = 'setting'),
		current_database(), current_user);
END $$;
SELECT run('ALTER FUNCTION put_with_setting() SET leader_election.fence = %L');
SELECT put_with_setting();
SELECT put('after the function');
DROP FUNCTION put_with_setting;

-- A setting presents without membership in the election's owner: whoever may
-- write the table is judged by the token only.  leader_fence() needs more.
SET ROLE regress_le_setting;
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
SELECT put('as a writer without other rights');
RESET leader_election.fence;
SELECT put('as a writer without a token');
RESET ROLE;

-- From the database or the role: it counts from the first statement of a
-- session, before anything has loaded the library.
SELECT run('ALTER DATABASE %2$I SET leader_election.fence = %1$L');
\c -
INSERT INTO setting VALUES ('set for the database');
SELECT current_setting('leader_election.fence') = 'setting=' || :current AS shown;
-- A session of one's own comes before it.
\c -
SET leader_election.fence = '';
SELECT put('emptied in the session');
\c -
SET leader_election.fence = 'setting=1';
SELECT put('stale in the session');
SELECT run('ALTER DATABASE %2$I RESET leader_election.fence');
\c -
SELECT put('no longer set for the database');
SELECT run('ALTER ROLE %3$I IN DATABASE %2$I SET leader_election.fence = %1$L');
\c -
SELECT put('set for the role');
SELECT run('ALTER ROLE %3$I IN DATABASE %2$I RESET leader_election.fence');

-- A placeholder set before the library is loaded.  Well formed it counts from
-- then on; malformed it counts as none, and does no harm to what loads it.
\c -
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
INSERT INTO setting VALUES ('placeholder');
\c -
BEGIN;
SELECT set_config('leader_election.fence', 'setting=' || :current, true) <> '' AS set;
INSERT INTO setting VALUES ('local placeholder');
COMMIT;
SELECT put('after the local placeholder');
\c -
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = error;
DO $$
BEGIN
	PERFORM set_config('leader_election.fence', 'setting=', false);
EXCEPTION WHEN invalid_parameter_value THEN
	NULL;	-- the server has loaded the library at its start
END $$;
SELECT put('malformed placeholder');
SELECT put('malformed placeholder, again');
SHOW leader_election.fence;
SELECT set_config('leader_election.fence', 'setting=' || :current, false) <> '' AS set;
SELECT put('well formed after a malformed placeholder');
\c -
SET client_min_messages = error;
SET leader_election.fence = 'setting=1';
SELECT put('stale placeholder');

SELECT count(*) FROM setting;
SELECT v FROM setting WHERE v NOT LIKE '%=%' ORDER BY v COLLATE "C";
DROP TABLE setting, setting_odd;
DROP FUNCTION put, present, run;
DROP ROLE regress_le_setting;
