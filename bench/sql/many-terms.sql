-- Terms that end in every way, many at a time: released, run out, and rolled back.
\set way random(1, 10)
\set lapsing random(1, 25)
\if :way = 1
BEGIN;
SELECT epoch FROM leader_acquire('brief ' || :client_id, 'holder');
ROLLBACK;
\elif :way = 2
SELECT epoch FROM leader_acquire('lapsing ' || :client_id || ' ' || :lapsing, 'holder', '100ms');
\else
SELECT epoch AS e FROM leader_acquire('brief ' || :client_id, 'holder') \gset
SELECT leader_release('brief ' || :client_id, :e);
\endif
