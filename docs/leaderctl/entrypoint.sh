#!/bin/sh
# entrypoint.sh: runs its arguments as a command while this container leads.
#
#	ELECTION	the election's name
#	TTL		how long the lease lasts, if not as the election is configured
#	KILL_AFTER	how long the command may take to end, 20s if not set
#
# and PGHOST, PGDATABASE, PGUSER, PGPASSWORD... as of all PostgreSQL's clients.  "exec":
# leaderctl has to be the process that gets the signals.
set -eu

exec leaderctl run -e "${ELECTION:?is not set}" ${TTL:+--ttl "$TTL"} \
	--kill-after "${KILL_AFTER:-20s}" --log-json -- "$@"
