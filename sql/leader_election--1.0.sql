-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION leader_election" to load this file. \quit

-- Internal tables and sequences.  They are written by the extension's C code
-- only; nobody needs or has rights on them but their owner.

-- What each term changes stands last, as an update logs what lies between the
-- first change and the last one.
CREATE TABLE leader_election_state (
    election text COLLATE "C" NOT NULL PRIMARY KEY,
    owner name NOT NULL,
    kind "char" NOT NULL,
    ttl bigint NOT NULL CHECK (ttl >= 0),
    terms bigint NOT NULL,
    epoch bigint NOT NULL CHECK (epoch >= 0 AND epoch < 9007199254740992),
    acquired_at timestamptz NOT NULL,
    holder text COLLATE "C"
) WITH (fillfactor = 50);
SELECT pg_catalog.pg_extension_config_dump('leader_election_state', '');
COMMENT ON TABLE leader_election_state IS
'internal: one row for each election, with its newest term';

CREATE TABLE leader_election_metadata (
    election text COLLATE "C" NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL,
    metadata jsonb
) WITH (fillfactor = 50);
SELECT pg_catalog.pg_extension_config_dump('leader_election_metadata', '');
COMMENT ON TABLE leader_election_metadata IS
'internal: what a leader published about itself; counts for the term with that epoch only';

CREATE TABLE leader_election_config (
    election text COLLATE "C" NOT NULL PRIMARY KEY,
    paused boolean NOT NULL,
    ttl bigint NOT NULL CHECK (ttl >= 0),
    lock_delay bigint NOT NULL CHECK (lock_delay >= 0),
    failover_limit bigint NOT NULL CHECK (failover_limit >= 0),
    failover_window bigint NOT NULL CHECK (failover_window > 0),
    takeovers timestamptz[] NOT NULL
);
SELECT pg_catalog.pg_extension_config_dump('leader_election_config', '');
COMMENT ON TABLE leader_election_config IS
'internal: what leader_configure() has set, in microseconds, and recent takeovers';

CREATE TABLE leader_election_history (
    election text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    leader text NOT NULL,
    acquired_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    end_reason text NOT NULL
);
CREATE INDEX leader_election_history_election
    ON leader_election_history (election, epoch);
COMMENT ON INDEX leader_election_history_election IS
'internal: not unique, as history must never stop an election';
SELECT pg_catalog.pg_extension_config_dump('leader_election_history', '');
COMMENT ON TABLE leader_election_history IS
'internal: one row for each term that has ended';

CREATE FUNCTION leader_election_guard()
RETURNS trigger
AS 'MODULE_PATHNAME', 'le_leader_election_guard'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_election_guard() IS
'internal: trigger that refuses every change of rows by hand';

CREATE TRIGGER leader_election_guard
BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON leader_election_state
FOR EACH STATEMENT EXECUTE FUNCTION leader_election_guard();
COMMENT ON TRIGGER leader_election_guard ON leader_election_state IS
'internal: leadership would go on in memory';

CREATE TRIGGER leader_election_guard
BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON leader_election_metadata
FOR EACH STATEMENT EXECUTE FUNCTION leader_election_guard();
COMMENT ON TRIGGER leader_election_guard ON leader_election_metadata IS
'internal: leadership would go on in memory';

CREATE TRIGGER leader_election_guard
BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON leader_election_config
FOR EACH STATEMENT EXECUTE FUNCTION leader_election_guard();
COMMENT ON TRIGGER leader_election_guard ON leader_election_config IS
'internal: leadership would go on in memory';

CREATE SEQUENCE leader_election_epoch MINVALUE 0 MAXVALUE 9007199254740991;
SELECT pg_catalog.pg_extension_config_dump('leader_election_epoch', '');
GRANT USAGE ON SEQUENCE leader_election_epoch TO PUBLIC;
COMMENT ON SEQUENCE leader_election_epoch IS
'no epoch drawn so far is higher; a role with USAGE on it may create elections';

CREATE SEQUENCE leader_election_epoch_identity MINVALUE 0;
SELECT pg_catalog.pg_extension_config_dump('leader_election_epoch_identity', '');
COMMENT ON SEQUENCE leader_election_epoch_identity IS
'internal: the server and timeline in which the counter was set';

CREATE SEQUENCE leader_election_epoch_drawn_at MINVALUE 0;
SELECT pg_catalog.pg_extension_config_dump('leader_election_epoch_drawn_at', '');
COMMENT ON SEQUENCE leader_election_epoch_drawn_at IS
'internal: when the counter was set, if it lies ahead of the clock';

-- Leases

-- A type and not OUT arguments: of those, the server would look up every column
-- at each call.
CREATE TYPE leader_answer AS (
    is_leader boolean,
    epoch bigint,
    leader text,
    expires_in interval,
    step_down_after interval,
    retry_after interval);
COMMENT ON TYPE leader_answer IS
'the answer to a bid or a renewal';

CREATE FUNCTION leader_acquire(
    election text,
    holder text,
    ttl interval DEFAULT NULL,
    wait interval DEFAULT '0',
    metadata jsonb DEFAULT NULL)
RETURNS leader_answer
AS 'MODULE_PATHNAME', 'le_leader_acquire'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_acquire(text, text, interval, interval, jsonb) IS
'acquire leadership of an election, or renew it as the same holder';

CREATE FUNCTION leader_acquire_session(
    election text,
    holder text DEFAULT NULL,
    ttl interval DEFAULT NULL,
    wait interval DEFAULT '0',
    metadata jsonb DEFAULT NULL)
RETURNS leader_answer
AS 'MODULE_PATHNAME', 'le_leader_acquire_session'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_acquire_session(text, text, interval, interval, jsonb) IS
'acquire leadership for as long as this session lasts';

CREATE FUNCTION leader_renew(election text, epoch bigint)
RETURNS leader_answer
AS 'MODULE_PATHNAME', 'le_leader_renew'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_renew(text, bigint) IS
'extend the lease of a term';

CREATE FUNCTION leader_renew_all(holder text)
RETURNS TABLE (election text, epoch bigint, expires_in interval)
AS 'MODULE_PATHNAME', 'le_leader_renew_all'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_renew_all(text) IS
'extend all leases of a holder';

CREATE FUNCTION leader_release(election text, epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'le_leader_release'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_release(text, bigint) IS
'end a term; true if this call ended it';

CREATE FUNCTION leader_check(election text, epoch bigint)
RETURNS boolean
AS 'MODULE_PATHNAME', 'le_leader_check'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_check(text, bigint) IS
'is this epoch current, and has its lease not run out?';

CREATE FUNCTION leader_set_metadata(election text, epoch bigint, metadata jsonb)
RETURNS boolean
AS 'MODULE_PATHNAME', 'le_leader_set_metadata'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_set_metadata(text, bigint, jsonb) IS
'publish something about the leader for as long as this term lasts; null removes it';

CREATE FUNCTION leader_configure(
    election text,
    ttl interval DEFAULT NULL,
    lock_delay interval DEFAULT NULL,
    failover_limit integer DEFAULT NULL,
    failover_window interval DEFAULT NULL,
    paused boolean DEFAULT NULL,
    owner name DEFAULT NULL,
    external boolean DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'le_leader_configure'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_configure(text, interval, interval, integer, interval, boolean, name, boolean) IS
'set what holds for every term of an election; null leaves it as it is';

CREATE FUNCTION leader_depose(election text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'le_leader_depose'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_depose(text) IS
'end the current term; returns an epoch that nobody holds, or null if nobody led';

CREATE FUNCTION leader_drop(election text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'le_leader_drop'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_drop(text) IS
'forget a free election; true if there was one';

CREATE FUNCTION leader_prune(older_than interval)
RETURNS bigint
AS 'MODULE_PATHNAME', 'le_leader_prune'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_prune(interval) IS
'delete terms from the history that ended longer ago; returns how many';

-- Fencing

CREATE FUNCTION leader_fence(election text, epoch bigint)
RETURNS void
AS 'MODULE_PATHNAME', 'le_leader_fence'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_fence(text, bigint) IS
'fence the current transaction: it fails now or at commit if the epoch is not current';

CREATE FUNCTION leader_fence_check()
RETURNS trigger
AS 'MODULE_PATHNAME', 'le_leader_fence_check'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_fence_check() IS
'trigger that refuses a write without a current epoch; arguments: election [, epoch column]';

CREATE FUNCTION leader_protect(
    relation regclass,
    election text,
    epoch_column name DEFAULT NULL,
    replica boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME', 'le_leader_protect'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_protect(regclass, text, name, boolean) IS
'refuse writes to a table without a current epoch of the election';

CREATE FUNCTION leader_unprotect(relation regclass)
RETURNS void
AS 'MODULE_PATHNAME', 'le_leader_unprotect'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_unprotect(regclass) IS
'undo leader_protect';

CREATE FUNCTION leader_election_cover()
RETURNS event_trigger
AS 'MODULE_PATHNAME', 'le_leader_election_cover'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_election_cover() IS
'internal: event trigger that protects what becomes part of a protected table';

CREATE EVENT TRIGGER leader_election_cover ON ddl_command_end
WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'CREATE SCHEMA')
EXECUTE FUNCTION leader_election_cover();
COMMENT ON EVENT TRIGGER leader_election_cover IS
'internal: new partitions and children of a protected table are protected too';

-- Seeing

CREATE FUNCTION leader_election_protected(
    OUT relation regclass,
    OUT election text,
    OUT epoch_column name,
    OUT level text,
    OUT replica boolean,
    OUT in_force boolean,
    OUT problem text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'le_leader_election_protected'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_election_protected() IS
'internal: the rows behind the view leader_protected';

CREATE VIEW leader_protected AS
SELECT p.relation, p.election, p.epoch_column, p.level, p.replica, p.in_force,
       p.problem
FROM leader_election_protected() p;
COMMENT ON VIEW leader_protected IS
'every protected table, and whether its protection is fully in force';
GRANT SELECT ON leader_protected TO PUBLIC;

CREATE FUNCTION leader_election_status(
    OUT election text,
    OUT leader text,
    OUT epoch bigint,
    OUT kind text,
    OUT state text,
    OUT ttl interval,
    OUT expires_in interval,
    OUT acquired_at timestamptz,
    OUT metadata jsonb,
    OUT owner text,
    OUT terms bigint,
    OUT pid integer,
    OUT paused boolean,
    OUT holder text,
    OUT ended_at timestamptz,
    OUT end_reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'le_leader_election_status'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_election_status() IS
'internal: the rows behind the views leader_status and leader_term';

CREATE VIEW leader_status AS
SELECT s.election, s.leader, s.epoch, s.kind, s.state,
       s.paused, s.ttl, s.expires_in, s.acquired_at, s.metadata, s.owner, s.terms,
       s.pid
FROM leader_election_status() s;
COMMENT ON VIEW leader_status IS
'every election, and who leads it for how long';
GRANT SELECT ON leader_status TO PUBLIC;

-- Who may see an election is told its owner by the function.  Conditions of a
-- query must not see rows before that; the barrier alone would be flattened
-- away with the union, which OFFSET prevents.
CREATE VIEW leader_term WITH (security_barrier) AS
SELECT h.election, h.epoch, h.leader, h.acquired_at, h.ended_at, h.end_reason
FROM leader_election_history h
JOIN leader_election_status() s ON s.election = h.election
WHERE s.owner IS NOT NULL
UNION ALL
SELECT s.election, s.epoch, s.holder, s.acquired_at, s.ended_at, s.end_reason
FROM leader_election_status() s
WHERE s.holder IS NOT NULL
OFFSET 0;
COMMENT ON VIEW leader_term IS
'every term that is known: when it began, and when and why it ended';
GRANT SELECT ON leader_term TO PUBLIC;

CREATE FUNCTION leader_election_stats(
    OUT election text,
    OUT terms bigint,
    OUT takeovers bigint,
    OUT changes_last_hour bigint,
    OUT renewals bigint,
    OUT longest_renewal_gap interval,
    OUT losing_bids bigint,
    OUT fenced_commits bigint,
    OUT rejected_stale bigint,
    OUT rejected_missing bigint,
    OUT rejected_unissued bigint,
    OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'le_leader_election_stats'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_election_stats() IS
'internal: the rows behind the view leader_stats';

CREATE VIEW leader_stats AS
SELECT s.election, s.terms, s.takeovers, s.changes_last_hour, s.renewals,
       s.longest_renewal_gap, s.losing_bids, s.fenced_commits,
       s.rejected_stale, s.rejected_missing, s.rejected_unissued,
       s.stats_reset
FROM leader_election_stats() s;
COMMENT ON VIEW leader_stats IS
'what was counted for every election since the server started, or since a reset';
GRANT SELECT ON leader_stats TO PUBLIC;

CREATE FUNCTION leader_stats_reset(election text DEFAULT NULL)
RETURNS void
AS 'MODULE_PATHNAME', 'le_leader_stats_reset'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION leader_stats_reset(text) IS
'begin to count anew, for one election or for all that the current user may steer';
