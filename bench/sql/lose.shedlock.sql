-- The same statement as a winning one, which finds no row that it may take.
UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '15 s',
		locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'other'
	WHERE name = 'held' AND lock_until <= timezone('utc', CURRENT_TIMESTAMP);
