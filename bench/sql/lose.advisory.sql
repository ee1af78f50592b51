-- Another session holds this lock throughout.
SELECT pg_try_advisory_lock(2, 0);
