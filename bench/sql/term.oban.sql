-- Oban's election, and what a peer does when it ends; the transaction goes in one round trip.
\startpipeline
BEGIN;
DELETE FROM oban_peers WHERE name = 'term ' || :client_id AND expires_at < clock_timestamp() AT TIME ZONE 'UTC';
INSERT INTO oban_peers AS p (name, node, started_at, expires_at)
	VALUES ('term ' || :client_id, 'holder', clock_timestamp() AT TIME ZONE 'UTC',
		clock_timestamp() AT TIME ZONE 'UTC' + interval '30 s')
	ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at WHERE p.node = excluded.node;
COMMIT;
\endpipeline
WITH gone AS (
	DELETE FROM oban_peers WHERE name = 'term ' || :client_id AND node = 'holder' RETURNING name)
SELECT pg_notify('oban_leader', '{"down": "oban"}') FROM gone;
