-- A fenced write of one of the leader's connections; the setting has the token.
UPDATE written SET n = n + 1 WHERE writer = :client_id;
