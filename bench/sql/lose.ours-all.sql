-- A bid for an election that somebody else holds.
SELECT * FROM leader_acquire('held', 'other');
