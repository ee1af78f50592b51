-- A term with the equivalent of pg_lease.
SELECT epoch AS e FROM lease_acquire('term ' || :client_id, 'holder', '15 s') \gset
SELECT lease_release('term ' || :client_id, 'holder', :e);
