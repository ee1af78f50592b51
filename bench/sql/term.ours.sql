-- A term from its beginning to its end: two durable transactions.
SELECT epoch AS e FROM leader_acquire('term ' || :client_id, 'holder') \gset
SELECT leader_release('term ' || :client_id, :e);
