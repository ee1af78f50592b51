# The server that is measured: built, started, asked, and what it has used.
#
# Needs "work", a directory of ours, and "top", the sources.

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# A server refuses to run as root.
choose_server_user() {
	as_server=() server_user=
	[ "$(id -u)" -eq 0 ] || return 0
	for server_user in "${SUDO_USER-}" postgres nobody; do
		[ "$(id -u "$server_user" 2>/dev/null || echo 0)" -eq 0 ] || break
	done
	[ "$(id -u "$server_user" 2>/dev/null || echo 0)" -ne 0 ] ||
		die 'no unprivileged user to run the server as'
	as_server=(setpriv "--reuid=$server_user" "--regid=$(id -g "$server_user")" --init-groups
		env PATH=/usr/local/bin:/usr/bin:/bin)
}

# The output of a step is worth reading only if it failed.
step() {
	local what=$1
	shift
	"$@" >"$work/step.log" 2>&1 </dev/null || {
		tail -n 30 "$work/step.log" >&2
		die "$what failed"
	}
}

# Builds the sources as they lie here for a private copy of the server, into which
# they are installed; nothing is installed anywhere else.
build_private() {
	step 'the copy of the server' "$top/test/setup" --copy "$work/server"
	pg_config=$(tail -n 1 "$work/step.log")
	command -v make gcc >/dev/null || die 'make and gcc are needed; test/setup installs what is missing'
	mkdir "$work/source"
	tar -C "$top" --exclude='*.o' --exclude='*.bc' --exclude='*.so' -cf - Makefile leader_election.control cli sql src |
		tar -C "$work/source" --no-same-owner -xf -
	step 'the build' env -u MAKEFLAGS -u MFLAGS make -C "$work/source" -s -j "$cores" PG_CONFIG="$pg_config" all install
}

use_installed() {
	pg_config=${PG_CONFIG:-pg_config}
	"$pg_config" --bindir >/dev/null 2>&1 || die "cannot run $pg_config; set PG_CONFIG"
	[ -e "$("$pg_config" --sharedir)/extension/leader_election.control" ] ||
		die "the extension is not installed in the server of $pg_config"
}

make_server() {
	install -d -m 700 ${server_user:+-o "$server_user"} "$work/data" "$work/socket" &&
		chmod 755 "$work/socket" &&
		"${as_server[@]}" "$bindir/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C --no-sync &&
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work/socket'" 'port = 5432' \
			'leader_election.max_leases = 20000' >>"$work/data/postgresql.conf"
}

start_server() { "${as_server[@]}" "$bindir/pg_ctl" -D "$work/data" -l "$work/data/log" -w start; }

restart_server() {
	close_observer
	step 'the restart of the server' "${as_server[@]}" "$bindir/pg_ctl" -D "$work/data" -l "$work/data/log" -m fast -w restart
	postmaster=$(head -n 1 "$work/data/postmaster.pid")
	open_observer
}

sql() { "$bindir/psql" -qAtX -v ON_ERROR_STOP=1 "$@"; }
ask() { sql -c "$1"; }

# A session that stays, for questions that must not take long: look STATEMENT sets
# "seen" to the first line of the answer.  It also holds the advisory lock that
# others do not get.
open_observer() {
	coproc OBSERVER { PGOPTIONS= exec "$bindir/psql" -qAtX; }
	observer=$OBSERVER_PID
	look 'SELECT pg_backend_pid() FROM pg_advisory_lock(2, 0)'
	postmaster=$(head -n 1 "$work/data/postmaster.pid")
}

close_observer() {
	eval "exec ${OBSERVER[1]}>&-"
	wait "$observer" || true
}

look() {
	echo "$1;" >&"${OBSERVER[1]}"
	read -r seen <&"${OBSERVER[0]}" || die "the server does not answer: $1"
}

# Sets "cpu", the processor time in microseconds that all processes of the server
# have used, those that have ended included.  Time of a process that lives is told
# in nanoseconds, that of ended ones in hundredths of a second.
cpu_time() {
	local pid children nanoseconds rest line fields
	cpu=0 children=()
	read -ra children <"/proc/$postmaster/task/$postmaster/children" || true
	for pid in "$postmaster" "${children[@]}"; do
		{ read -r nanoseconds rest <"/proc/$pid/schedstat"; } 2>/dev/null && cpu=$((cpu + nanoseconds / 1000)) || true
	done
	line=$(<"/proc/$postmaster/stat")
	fields=(${line##*) })
	cpu=$((cpu + (fields[13] + fields[14]) * 1000000 / clock_ticks))
}

# Sets "wal", "flushes" and "cpu" as they are when the clients of a run have gone:
# a session reports its share when it ends.  "others" are sessions of ours that stay.
others=0
usage_now() {
	local try
	for try in {1..200}; do
		look "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
		[ "$seen" -gt $((1 + others)) ] || break
		sleep 0.005
	done
	wal_now
	cpu_time
}

wal_now() {
	if [ "$major" -ge 18 ]; then
		look "SELECT pg_current_wal_insert_lsn() - '0/0', sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
	else
		look "SELECT pg_current_wal_insert_lsn() - '0/0', wal_sync FROM pg_stat_wal"
	fi
	wal=${seen%|*} flushes=${seen#*|}
}

# In a session of its own, until release_snapshot
hold_snapshot() {
	local try
	mkfifo "$work/holder"
	"$bindir/psql" -qAtX <"$work/holder" >"$work/holder.out" &
	holder=$!
	exec 9>"$work/holder"
	echo 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id() IS NOT NULL;' >&9
	for try in {1..200}; do
		[ ! -s "$work/holder.out" ] || break
		sleep 0.05
	done
	[ "$(<"$work/holder.out")" = t ] || die 'no snapshot could be held'
	others=1
}

release_snapshot() {
	exec 9>&-
	wait "$holder" || true
	rm "$work/holder"
	others=0
}
