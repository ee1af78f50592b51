-- A bid for an election that somebody else holds.
SELECT (leader_acquire('held', 'other')).is_leader;
