# Sections: the operations of a lease, ours and those of the field.

# What a contender is called in the tables
title() {
	case $1.$2 in
		*.select-1) echo '`SELECT 1`' ;;
		renew.ours) echo '**`leader_renew`, whether leader**' ;;
		renew.ours-all) echo '**`leader_renew`, all of the answer**' ;;
		renew.acquire) echo '**`leader_acquire` by the holder**' ;;
		lose.ours) echo '**`leader_acquire`, whether leader**' ;;
		lose.ours-all) echo '**`leader_acquire`, all of the answer**' ;;
		check.ours) echo '**`leader_check`**' ;;
		check.session) echo '**`leader_check` of a session term**' ;;
		check.session-fence) echo '**`leader_fence` of a session term**' ;;
		term.ours) echo '**`leader_acquire`, `leader_release`**' ;;
		term.ours-bare) echo '**the same, `leader_election.history` off, too**' ;;
		term.ours-quiet) echo '**the same, `leader_election.notify` off**' ;;
		all.ours) echo '**`leader_renew_all`**' ;;
		all.upsert) echo 'hand-written `UPDATE`' ;;
		*.upsert) echo 'hand-written upsert' ;;
		*.upsert-async) echo 'hand-written upsert, `synchronous_commit` off' ;;
		*.upsert-notify) echo 'hand-written upsert, notifying' ;;
		*.river) echo 'River' ;;
		*.river-async) echo 'River, `synchronous_commit` off' ;;
		*.river-unlogged) echo 'River, UNLOGGED' ;;
		*.oban) echo 'Oban' ;;
		*.oban-async) echo 'Oban, `synchronous_commit` off' ;;
		*.oban-unlogged) echo 'Oban, UNLOGGED' ;;
		*.shedlock) echo 'ShedLock' ;;
		*.shedlock-async) echo 'ShedLock, `synchronous_commit` off' ;;
		*.pg_lease) echo 'pg_lease' ;;
		*.pg_lease-async) echo 'pg_lease, `synchronous_commit` off' ;;
		check.advisory) echo 'advisory lock, looked up in pg_locks' ;;
		*.advisory) echo 'advisory lock' ;;
		renew.etcd) echo 'etcd, keepalive' ;;
		check.etcd) echo 'etcd, linearizable read' ;;
		*.etcd) echo 'etcd, compare-and-swap' ;;
		*) fence_title "$2" ;;
	esac
}

heading_of() {
	case $1 in
		renew) echo 'Renewal' ;;
		lose) echo 'Losing bid' ;;
		term) echo 'Acquire and release' ;;
		check) echo 'Check: does this one lead?' ;;
	esac
}

contenders_in() {
	case $1 in
		renew) echo select-1 ours ours-all acquire upsert upsert-async river river-unlogged oban oban-unlogged shedlock pg_lease ;;
		lose) echo select-1 ours ours-all upsert river oban shedlock pg_lease advisory ;;
		term) echo ours ours-quiet ours-bare upsert upsert-notify river river-unlogged oban oban-unlogged shedlock pg_lease advisory ;;
		check) echo select-1 ours session session-fence upsert pg_lease advisory ;;
	esac
	etcd_or_nothing
}

measure_operation() {
	local operation=$1 clients
	for clients in $client_counts; do
		compete "$operation" "$clients" "$rounds" $(contenders_in "$operation")
	done
	tell '## %s\n\n' "$(heading_of "$operation")"
	table "$operation" "$(contenders_in "$operation" | head -n 1 | cut -d ' ' -f 1)"
}

measure_renew() { measure_operation renew; }
measure_lose() { measure_operation lose; }
measure_term() { measure_operation term; }
measure_check() { measure_operation check; }

# Each contender's scripts are run by one client, and then must have done what they
# are there for.
verify_scripts() {
	local contender
	say 'trying all scripts'
	for contender in ours ours-all acquire upsert upsert-async river river-unlogged oban oban-unlogged shedlock pg_lease; do
		verify "$contender" renew
	done
	for contender in ours ours-all upsert river oban shedlock pg_lease; do
		verify "$contender" lose
		verify "$contender" term
	done
}

verify() {
	local before after
	before=$(PGOPTIONS=$(options_of "$1") ask "$(state_of "$1" "$2")")
	PGOPTIONS=$(options_of "$1") pgbench_run 1 3 -f "$(script_of "$2" "$1")"
	after=$(PGOPTIONS=$(options_of "$1") ask "$(state_of "$1" "$2")")
	case $2 in
		renew) [ -n "$after" ] && [ "$after" != "$before" ] ;;
		lose) [ "$after" = "held by holder" ] ;;
		term) [ "$after" = "$(expected_of_term "$1" "$before")" ] ;;
	esac || die "$1 has not done what $2 says: $before, then $after"
}

# What a renewal moves, who holds what everybody loses, and how many terms there have
# been of an election that must be free; those who do not count terms have left nothing.
state_of() {
	local row holder
	case ${1%%-*} in
		ours | ours-all | acquire)
			case $2 in
				renew) echo "SELECT renewals FROM leader_stats WHERE election = '0'" ;;
				lose) echo "SELECT 'held by ' || leader FROM leader_status WHERE election = 'held'" ;;
				term) echo "SELECT count(*) || ' terms' FROM leader_term WHERE election = 'term 0' AND end_reason = 'released'" ;;
			esac
			return ;;
		upsert) row='upsert_lease WHERE name' holder=holder ;;
		river) row='river_leader WHERE name' holder=leader_id ;;
		oban) row='oban_peers WHERE name' holder=node ;;
		shedlock) row='shedlock WHERE name' holder=locked_by ;;
		pg_lease) row='lease WHERE key' holder=owner ;;
	esac
	case $2.$1 in
		renew.shedlock) echo "SELECT lock_until FROM $row = '0'" ;;
		renew.*) echo "SELECT expires_at FROM $row = '0'" ;;
		lose.*) echo "SELECT 'held by ' || $holder FROM $row = 'held'" ;;
		term.upsert) echo "SELECT coalesce(max(epoch), 0) || ' terms' FROM $row = 'term 0' AND holder IS NULL" ;;
		term.pg_lease) echo "SELECT coalesce(max(epoch) / 2, 0) || ' terms' FROM $row = 'term 0' AND owner IS NULL" ;;
		term.shedlock) echo "SELECT count(*) || ' left' FROM $row = 'term 0' AND lock_until > now() AT TIME ZONE 'UTC'" ;;
		term.*) echo "SELECT count(*) || ' left' FROM $row = 'term 0'" ;;
	esac
}

expected_of_term() {
	case $2 in
		*' terms') echo "$((${2% terms} + 3)) terms" ;;
		*) echo '0 left' ;;
	esac
}

# A snapshot that another session holds open keeps all old versions of a row alive.
measure_snapshot() {
	local rows=(upsert-async river-async oban-async shedlock-async pg_lease-async)
	local renewals=$((quick ? 100000 : 1000000)) clients=4 contender seconds=$((quick ? 2 : 12))
	local before after passed

	[ -z "$smoke" ] || renewals=400 seconds=1 rows=(upsert-async)
	compete 'renew, fresh' 1 "$rounds" select-1 ours "${rows[@]}"
	hold_snapshot
	pgbench_run "$clients" $((renewals / clients)) -f "$(script_of renew ours)"
	tell '## Renewals under a snapshot that another session holds open\n\n'
	for contender in "${rows[@]}"; do
		passed=$(PGOPTIONS=$(options_of "$contender") timed_run "$seconds" -f "$(script_of renew "$contender")")
		printf '%s\t%s\n' "$contender" "$passed" >>"$work/passed"
	done
	printf 'ours\t%s\n' "$renewals" >>"$work/passed"
	compete 'renew, held' 1 "$rounds" select-1 ours "${rows[@]}"
	release_snapshot

	tell 'One client. Of the hand-written ones, which would take for ever, as many renewals pass as %s s allow; with `synchronous_commit` off, or the disk would hide the effect.\n\n' "$seconds"
	tell '| | renewals that have passed | before: us | after: us | times as long, median (quartiles) |\n|---|---|---|---|---|\n'
	for contender in select-1 ours "${rows[@]}"; do
		before=$(times 'renew, fresh' 1 "$contender" | median)
		after=$(times 'renew, held' 1 "$contender" | median)
		tell '| %s | %s | %.1f | %.1f | %s |\n' "$(title renew "$contender")" \
			"$(awk -v n="$contender" '$1 == n { print $2 }' "$work/passed" | sed 's/^$/–/')" \
			"$before" "$after" "$(times 'renew, held' 1 "$contender" | awk -v b="$before" '{ print $1 / b }' | spread)"
	done
	tell '\n'
}

# One client for so many seconds; prints how many transactions there were.
timed_run() {
	local seconds=$1
	shift
	"$bindir/pgbench" -n -M prepared -T "$seconds" -D e=0 "$@" >"$work/pgbench.log" 2>&1 || {
		tail -n 20 "$work/pgbench.log" >&2
		die 'pgbench failed'
	}
	sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$work/pgbench.log"
}

measure_all() {
	compete all 1 "$rounds" ours upsert
	tell '## A thousand leases of one holder, renewed at once\n\nA thousandth of the time is that of one lease.\n\n'
	table all ours
}

set_autovacuum() { sql -c "ALTER SYSTEM SET autovacuum = $1" -c 'SELECT pg_reload_conf()' >/dev/null; }

# Ten thousand leases, renewed as their holders would: every third of the TTL, all of
# a holder's at once.  In a database of its own, as others look at all elections.
measure_holders() {
	local holders=50 leases=200 window=$((quick ? 10 : 30)) settle=30 ready=0 try children
	local wal_before flushes_before cpu_before held pid

	[ -z "$smoke" ] || holders=5 leases=4 window=1 settle=0
	ask 'CREATE DATABASE holders'
	PGDATABASE=holders ask 'CREATE EXTENSION leader_election'
	PGDATABASE=holders PGOPTIONS='-c leader_election.max_elections=20000' "$bindir/pgbench" -n -M prepared \
		-c "$holders" -j 2 -T "$((window + 150))" -D n=0 -D leases="$leases" \
		-f "$here/sql/holders.sql" >"$work/holders.log" 2>&1 </dev/null &
	pid=$!
	others=$holders
	for ((try = 0; try < 600 && !ready; try++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
		! [ "$(PGDATABASE=holders ask "SELECT count(*) FROM leader_status WHERE state = 'held'")" -eq $((holders * leases)) ] ||
			ready=1
	done
	[ "$ready" -eq 1 ] || { cat "$work/holders.log" >&2; die 'the leases were not acquired'; }
	# What the grants have left to write is not the renewals', nor is a vacuum, nor the
	# record of running transactions that an idle server writes within 25 s after that; and
	# a session tells what it has flushed after its next call only.
	set_autovacuum off
	ask CHECKPOINT
	sleep "$settle"
	wal_now
	cpu_time
	wal_before=$wal flushes_before=$flushes cpu_before=$cpu
	sleep "$window"
	wal_now
	cpu_time
	held=$(PGDATABASE=holders ask "SELECT count(*) FROM leader_status WHERE state = 'held' AND terms = 1")
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	others=0
	set_autovacuum on
	for try in {1..100}; do
		ask 'DROP DATABASE holders' >/dev/null 2>&1 && break
		sleep 0.1
	done
	used_cpu=$(divide $((cpu - cpu_before)) $((window * 10000)))
	used_flushes=$((flushes - flushes_before)) used_wal=$((wal - wal_before))
	# Too little to be seen is nothing.
	used_cpu=${used_cpu/#-*/0.00}
	echo "$used_cpu $used_flushes" >"$work/holders"
	tell '## %d leases of %d holders with a TTL of 10 s\n\nEach holder calls `leader_renew_all` every 3.3 s. In %d s:\n\n' \
		"$((holders * leases))" "$holders" "$window"
	tell '| leases still held, of the first term | server CPU, %% of one core | flushes | WAL bytes |\n|---|---|---|---|\n| %d | %s | %d | %d |\n\n' \
		"$held" "$used_cpu" "$used_flushes" "$used_wal"
	[ "$held" -eq $((holders * leases)) ] || die 'some leases were lost'
}
