SELECT * FROM lease_renew(:client_id::text, 'holder', 1, '24h');
