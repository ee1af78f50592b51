-- Each client renews its own lease; it asks for the epoch once.
\if :e = 0
SELECT epoch AS e FROM leader_acquire(:client_id, 'holder') \gset
\endif
SELECT * FROM leader_renew(:client_id, :e);
