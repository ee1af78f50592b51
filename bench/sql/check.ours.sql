-- Is this client's lease current, and has it not run out?
\if :e = 0
SELECT epoch AS e FROM leader_acquire(:client_id, 'holder') \gset
\endif
SELECT leader_check(:client_id, :e);
