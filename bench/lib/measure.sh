# Runs of pgbench, each a slice of time, that take turns.
#
# A run belongs to an operation and a contender; its script is sql/OPERATION.CONTENDER.sql,
# or the contender's alone.  What starting the clients costs the server is measured
# apart and taken off.

# pgbench_run CLIENTS TRANSACTIONS OPTION...: transactions are of each client
pgbench_run() {
	local clients=$1 transactions=$2
	shift 2
	"$bindir/pgbench" -n -M prepared -c "$clients" -j "$((clients < cores ? clients : cores))" \
		-t "$transactions" -D e=0 -D held=0 -D session_epoch=0 "$@" >"$work/pgbench.log" 2>&1 || {
		tail -n 20 "$work/pgbench.log" >&2
		die "pgbench failed: $*"
	}
	tps=$(sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$work/pgbench.log")
}

# The script of a contender in an operation; some only differ in settings.
script_of() {
	local operation=${1%%,*} name
	for name in "$operation.$2" "$operation.${2%%-*}" "$2"; do
		for name in "$work/$name.sql" "$here/sql/$name.sql"; do
			if [ -e "$name" ]; then
				echo "$name"
				return
			fi
		done
	done
	die "no script for $2 in $1"
}

# Settings of a contender's sessions
options_of() {
	case $1 in
		*-unlogged) echo '-c search_path=unlogged,logged,public' ;;
		*-async) echo '-c search_path=logged,public -c synchronous_commit=off' ;;
		ours-quiet) echo '-c search_path=logged,public -c leader_election.notify=off' ;;
		*) echo '-c search_path=logged,public' ;;
	esac
}

# run_slice OPERATION CLIENTS CONTENDER TRANSACTIONS: sets "tps", and how much of what
# the server has used: used_wal, used_flushes, used_cpu
run_slice() {
	local operation=$1 clients=$2 contender=$3 transactions=$4 wal_before flushes_before cpu_before
	if [ "$contender" = etcd ]; then
		etcd_slice "$@"
		return
	fi
	usage_now
	wal_before=$wal flushes_before=$flushes cpu_before=$cpu
	PGOPTIONS="$(options_of "$contender") $session_options" \
		pgbench_run "$clients" "$transactions" -f "$(script_of "$operation" "$contender")"
	usage_now
	used_wal=$((wal - wal_before)) used_flushes=$((flushes - flushes_before)) used_cpu=$((cpu - cpu_before))
}
session_options=

# Transactions of each client that take about one slice at this rate
slice_size() {
	awk -v t="$tps" -v s="$1" -v c="$2" 'BEGIN { n = int(t * s / c); print n < 5 ? 5 : n }'
}

# compete OPERATION CLIENTS ROUNDS CONTENDER...: appends to the results.  The first runs
# warm up and tell how many transactions make a slice.
compete() {
	local operation=$1 clients=$2 rounds=$3 round contender
	local -A size startup
	shift 3
	for contender in "$@"; do
		[ -n "$smoke" ] || run_slice "$operation" "$clients" "$contender" 2
		run_slice "$operation" "$clients" "$contender" 2
		startup[$contender]=$used_cpu
		size[$contender]=$(slice_size "$slice" "$clients")
	done
	for contender in "$@"; do
		[ -z "$smoke" ] || break
		run_slice "$operation" "$clients" "$contender" "${size[$contender]}"
		size[$contender]=$(slice_size "$slice" "$clients")
	done
	for ((round = 0; round < rounds; round++)); do
		for contender in $(rotated "$round" "$@"); do
			run_slice "$operation" "$clients" "$contender" "${size[$contender]}"
			[ "$used_cpu" -lt 0 ] || used_cpu=$((used_cpu > startup[$contender] ? used_cpu - startup[$contender] : 0))
			awk -v OFS='\t' -v g="$operation" -v c="$clients" -v n="$contender" -v r="$round" -v t="$tps" \
				-v k="$((clients * size[$contender]))" -v w="$used_wal" -v f="$used_flushes" -v p="$used_cpu" \
				'BEGIN { print g, c, n, r, 1e6 * c / t, k, w, f, p }' >>"$work/results"
			size[$contender]=$(slice_size "$slice" "$clients")
		done
	done
}
