-- The hand-written row lease, with a notification of the beginning and of the end.
WITH bid AS (
	INSERT INTO upsert_lease AS l
		VALUES ('term ' || :client_id, 'holder', 1, clock_timestamp() + interval '15 s')
		ON CONFLICT (name) DO UPDATE SET
			holder = excluded.holder, expires_at = clock_timestamp() + interval '15 s',
			epoch = CASE WHEN l.holder = excluded.holder AND l.expires_at > clock_timestamp()
				THEN l.epoch ELSE l.epoch + 1 END
		WHERE l.expires_at <= clock_timestamp() OR l.holder = excluded.holder
		RETURNING epoch)
SELECT epoch AS e, pg_notify('hand', 'begin') FROM bid \gset
WITH release AS (
	UPDATE upsert_lease SET holder = NULL, expires_at = '-infinity'
		WHERE name = 'term ' || :client_id AND epoch = :e AND holder = 'holder'
		RETURNING epoch)
SELECT pg_notify('hand', 'end') FROM release;
