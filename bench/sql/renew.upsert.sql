-- The renewal of a hand-written row lease: one statement.
UPDATE upsert_lease SET expires_at = clock_timestamp() + interval '24h'
	WHERE name = :client_id::text AND holder = 'holder' AND epoch = 1 AND expires_at > clock_timestamp();
