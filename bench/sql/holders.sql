-- A holder that acquires its leases one by one, and then renews all of them every
-- third of their TTL; before, now and then, as a busy machine may need long for so
-- many grants.
\if :n < :leases
SELECT is_leader FROM leader_acquire(:client_id || '/' || :n, 'holder ' || :client_id, '10 s');
\set n :n + 1
\if :n % 20 = 0
SELECT count(*) FROM leader_renew_all('holder ' || :client_id);
\endif
\else
SELECT count(*) FROM leader_renew_all('holder ' || :client_id);
\sleep 3333 ms
\endif
