-- The same transaction as a winning one, which finds the row of somebody else.
\startpipeline
BEGIN;
DELETE FROM river_leader WHERE name = 'held' AND expires_at < now();
INSERT INTO river_leader (name, leader_id, elected_at, expires_at)
	VALUES ('held', 'other', now(), now() + interval '15 s')
	ON CONFLICT (name) DO NOTHING;
COMMIT;
\endpipeline
