#!/bin/bash
#
# A worker that works only while it leads: bash and psql.
#
#	psql.sh ELECTION TTL	connects as the PG* variables of the environment say
#
# One loop: bid when it is time to, otherwise do a piece of work if the lease is
# good for it.  Every call of psql ends after a while, so that the loop comes back
# also when the server does not answer.
set -u

election=$1 ttl=$2
holder="$(hostname) $$ $RANDOM$RANDOM"

export PGCONNECT_TIMEOUT=3
export PGOPTIONS="${PGOPTIONS-} -c statement_timeout=3s"

# Milliseconds on a clock that nobody sets, and that counts suspension too.
now() {
	local up
	read -r up _ </proc/uptime
	echo "${up%.*}$(printf %s0 "${up#*.}")"
}

# sql SECONDS [VARIABLE=VALUE...]: SQL on standard input, within so many seconds.
sql() {
	local limit=$1 variable set=()
	shift
	for variable; do set+=(-v "$variable"); done
	timeout --foreground "$limit" psql -XAtq -F ' ' -v ON_ERROR_STOP=1 -v VERBOSITY=sqlstate \
		-v election="$election" -v holder="$holder" "${set[@]}"
}

# Sets epoch ('' for a follower), until and next_bid.
bid() {
	local asked answer is_leader number step_down_after retry_after
	asked=$(now)
	if ! answer=$(sql 3 ttl="$ttl" <<-'SQL'
		SELECT is_leader::int, coalesce(epoch, 0),
		       coalesce(floor(extract(epoch FROM step_down_after) * 1000), 0),
		       ceil(extract(epoch FROM retry_after) * 1000)
		  FROM leader_acquire(:'election', :'holder', ttl => :'ttl');
		SQL
	); then
		echo "no answer to a bid"
		next_bid=$((asked + 500))	# the old deadline still holds
		return
	fi
	read -r is_leader number step_down_after retry_after <<<"$answer"
	next_bid=$((asked + retry_after))
	if [ "$is_leader" = 1 ] && [ "$number" != "$refused" ]; then
		epoch=$number until=$((asked + step_down_after))
	else
		epoch=
	fi
}

# A transaction that commits only if the epoch is still current.
piece_of_work() {
	sql 60 epoch="$epoch" <<-'SQL'
		BEGIN;
		SELECT leader_fence(:'election', :epoch) \g /dev/null
		INSERT INTO work (worker) VALUES (:'holder');
		\! sleep 0.1
		COMMIT;
	SQL
}

work() {
	local errors state
	errors=$(piece_of_work 2>&1) && return
	state=$(sed -n 's/.*\(ERROR\|FATAL\): *\([0-9A-Z]\{5\}\).*/\2/p' <<<"$errors" | head -n 1)
	echo "refused ${state:-$errors}"
	case $state in
		LE001) refused=$epoch epoch= ;;		# replaced or deposed
		40001 | 40P01 | 55P03 | 57014) sleep 0.05 ;;	# again, while still leader
		'' | 08* | 57P*) sleep 0.5 ;;		# the next call connects anew
		*) terminated=1 status=1 ;;		# LE002, LE003: a mistake
	esac
}

terminated= status=0 epoch= until=0 next_bid=0 refused= acting=
trap terminated=1 TERM INT

while [ -z "$terminated" ]; do
	[ "$(now)" -lt "$next_bid" ] || bid
	[ "$(now)" -lt "$until" ] || epoch=
	if [ "$epoch" != "$acting" ]; then
		acting=$epoch
		if [ -n "$acting" ]; then echo "leading $acting"; else echo "not leading"; fi
	fi
	if [ -n "$acting" ]; then work; else sleep 0.05; fi
done

if [ -n "$epoch" ]; then
	sql 3 epoch="$epoch" <<<"SELECT leader_release(:'election', :epoch)" >/dev/null && echo "released $epoch"
fi
exit "$status"
