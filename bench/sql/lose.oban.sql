-- The same transaction as a winning one, which finds the row of another node and locks it.
\startpipeline
BEGIN;
DELETE FROM oban_peers WHERE name = 'held' AND expires_at < clock_timestamp() AT TIME ZONE 'UTC';
INSERT INTO oban_peers AS p (name, node, started_at, expires_at)
	VALUES ('held', 'other', clock_timestamp() AT TIME ZONE 'UTC',
		clock_timestamp() AT TIME ZONE 'UTC' + interval '30 s')
	ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at WHERE p.node = excluded.node;
COMMIT;
\endpipeline
