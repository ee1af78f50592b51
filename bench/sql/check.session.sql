\if :held = 0
SELECT epoch AS session_epoch FROM leader_acquire_session('session ' || :client_id::text) \gset
\set held 1
\endif
SELECT leader_check('session ' || :client_id::text, :session_epoch);
