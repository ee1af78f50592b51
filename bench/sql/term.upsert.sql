-- The same with the hand-written row lease.
INSERT INTO upsert_lease AS l
	VALUES ('term ' || :client_id, 'holder', 1, clock_timestamp() + interval '15 s')
	ON CONFLICT (name) DO UPDATE SET
		holder = excluded.holder, expires_at = clock_timestamp() + interval '15 s',
		epoch = CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp()
			THEN l.epoch ELSE l.epoch + 1 END
	WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
	RETURNING epoch AS e \gset
UPDATE upsert_lease SET holder = NULL, expires_at = '-infinity'
	WHERE name = 'term ' || :client_id AND epoch = :e AND holder = 'holder';
