-- A holder that acquires its leases one by one, and then renews all of them every
-- third of their TTL.
\if :n < :leases
SELECT is_leader FROM leader_acquire(:client_id || '/' || :n, 'holder ' || :client_id, '10 s');
\set n :n + 1
\else
SELECT count(*) FROM leader_renew_all('holder ' || :client_id);
\sleep 3333 ms
\endif
