-- A transaction of one row; run puts the schema of a contender before the table.
INSERT INTO ledger (id, shard, amount) VALUES (:client_id, :client_id % 16, 1);
