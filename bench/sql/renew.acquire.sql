-- The holder simply acquires again, which renews.
SELECT * FROM leader_acquire(:client_id, 'holder');
