-- A transaction of one row; run puts the schema of a contender before the table.
INSERT INTO ledger (id, amount) VALUES (:client_id, 1);
