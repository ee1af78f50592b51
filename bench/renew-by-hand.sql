-- The renewal of a hand-written row lease.
UPDATE hand_lease SET expires_at = clock_timestamp() + interval '24h'
	WHERE name = 'renewed' AND holder = 'holder' AND expires_at > clock_timestamp();
