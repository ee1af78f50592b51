-- Does this session still hold its lock?
\if :held = 0
SELECT pg_advisory_lock(3, :client_id) AS ignored \gset
\set held 1
\endif
SELECT true FROM pg_locks WHERE locktype = 'advisory' AND classid = 3 AND objid = :client_id
	AND pid = pg_backend_pid() AND granted;
