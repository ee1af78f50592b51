-- The same with row leases.
UPDATE upsert_lease SET expires_at = clock_timestamp() + interval '24h'
	WHERE holder = 'holder of many' AND expires_at > clock_timestamp();
