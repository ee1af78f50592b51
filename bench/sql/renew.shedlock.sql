-- ShedLock's extension of a lock.
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '24h'
	WHERE name = :client_id::text AND locked_by = 'holder' AND lock_until > timezone('utc', CURRENT_TIMESTAMP);
