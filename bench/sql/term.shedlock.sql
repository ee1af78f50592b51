-- ShedLock by the server's time; the row is there since the first time.
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '15 s',
		locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'holder'
	WHERE name = 'term ' || :client_id AND lock_until <= timezone('utc', CURRENT_TIMESTAMP);
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP)
	WHERE name = 'term ' || :client_id AND locked_by = 'holder';
