-- River's re-election: a term is known by its leader and when it was elected.
UPDATE river_leader SET expires_at = now() + interval '24h'
	WHERE name = :client_id::text AND leader_id = 'holder' AND elected_at = '2020-01-01 00:00:00+00'
		AND expires_at >= now();
