-- Whoever wants to know reads who holds the lease.
SELECT * FROM lease_inspect(:client_id::text);
