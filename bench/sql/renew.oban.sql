-- Oban renews as it elects.
\startpipeline
BEGIN;
DELETE FROM oban_peers WHERE name = :client_id::text AND expires_at < clock_timestamp() AT TIME ZONE 'UTC';
INSERT INTO oban_peers AS p (name, node, started_at, expires_at)
	VALUES (:client_id::text, 'holder', clock_timestamp() AT TIME ZONE 'UTC',
		clock_timestamp() AT TIME ZONE 'UTC' + interval '24h')
	ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at WHERE p.node = excluded.node;
COMMIT;
\endpipeline
