-- The same by hand: a look at the row.
SELECT true FROM upsert_lease
	WHERE name = :client_id::text AND holder = 'holder' AND epoch = 1 AND expires_at > clock_timestamp();
