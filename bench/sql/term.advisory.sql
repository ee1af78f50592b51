SELECT pg_try_advisory_lock(1, :client_id);
SELECT pg_advisory_unlock(1, :client_id);
