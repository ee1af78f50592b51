-- River's election, and its resignation; the transaction goes in one round trip.
\startpipeline
BEGIN;
DELETE FROM river_leader WHERE name = 'term ' || :client_id AND expires_at < now();
INSERT INTO river_leader (name, leader_id, elected_at, expires_at)
	VALUES ('term ' || :client_id, 'holder', now(), now() + interval '15 s')
	ON CONFLICT (name) DO NOTHING;
COMMIT;
\endpipeline
WITH resigned AS (
	DELETE FROM river_leader WHERE name = 'term ' || :client_id AND leader_id = 'holder' RETURNING name)
SELECT pg_notify('river_leadership', '{"action": "resigned"}') FROM resigned;
