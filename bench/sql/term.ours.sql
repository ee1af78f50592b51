-- A term from its beginning to its end: two durable transactions.
SELECT (leader_acquire('term ' || :client_id, 'holder')).epoch AS e \gset
SELECT leader_release('term ' || :client_id, :e);
