SELECT * FROM lease_acquire('held', 'other', '15 s');
