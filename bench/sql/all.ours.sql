-- A thousand leases of one holder.
SELECT count(*) FROM leader_renew_all('holder of many');
