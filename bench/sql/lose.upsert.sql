-- A losing bid is the same statement as a winning one; it locks the row and changes nothing.
INSERT INTO upsert_lease AS l
	VALUES ('held', 'other', 1, clock_timestamp() + interval '15 s')
	ON CONFLICT (name) DO UPDATE SET
		holder = excluded.holder, expires_at = clock_timestamp() + interval '15 s',
		epoch = CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp()
			THEN l.epoch ELSE l.epoch + 1 END
	WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
	RETURNING epoch;
