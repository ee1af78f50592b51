# Runs of pgbench, each a slice of time, that take turns.
#
# A run belongs to an operation and a contender; its script is sql/OPERATION.CONTENDER.sql,
# or the contender's alone.

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
	local operation=${1%%,*} name path
	for name in "$operation.$2" "$operation.${2%%-*}" "$2"; do
		for path in "$work/$name.sql" "$here/sql/$name.sql"; do
			if [ -e "$path" ]; then
				echo "$path"
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
		ours-bare) echo '-c search_path=logged,public -c leader_election.notify=off -c leader_election.history=off' ;;
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

# Those that never wait for the disk differ by so little that the scheduler hides it
# in a short time.
slice_of() {
	case $1 in
		select-1 | ours | ours-all) echo "$long_slice" ;;
		*) echo "$slice" ;;
	esac
}

# Transactions of each client that take about one slice of that contender at this rate
slice_size() {
	awk -v t="$tps" -v s="$(slice_of "$1")" -v c="$2" 'BEGIN { n = int(t * s / c); print n < 24 ? 24 : n }'
}

# compete OPERATION CLIENTS ROUNDS CONTENDER...: appends to the results.  A first run
# tells how many transactions make a slice.
compete() {
	local operation=$1 clients=$2 rounds=$3 round contender
	local -A size
	shift 3
	for contender in "$@"; do
		size[$contender]=$((first_calls + 2))
		[ -z "$smoke" ] || continue
		run_slice "$operation" "$clients" "$contender" $((2 * first_calls))
		size[$contender]=$(slice_size "$contender" "$clients")
		run_slice "$operation" "$clients" "$contender" "${size[$contender]}"
		size[$contender]=$(slice_size "$contender" "$clients")
	done
	for ((round = 0; round < rounds; round++)); do
		for contender in $(rotated "$round" "$@"); do
			run_pair "$operation" "$clients" "$contender" "$round" "${size[$contender]}"
			size[$contender]=$(slice_size "$contender" "$clients")
		done
	done
}

# The first calls of a session cost more: the library is loaded, catalogs are read, and
# statements are planned anew five times.  So a short run, which is nothing but that, goes
# before each long one, and its time and processor time are taken off.
first_calls=8
run_pair() {
	local operation=$1 clients=$2 contender=$3 round=$4 transactions=$5 first_tps first_cpu
	run_slice "$operation" "$clients" "$contender" "$first_calls"
	first_tps=$tps first_cpu=$used_cpu
	run_slice "$operation" "$clients" "$contender" "$transactions"
	awk -v OFS='\t' -v g="$operation" -v c="$clients" -v n="$contender" -v r="$round" -v t="$tps" -v k="$transactions" \
		-v f="$first_calls" -v ft="$first_tps" -v w="$used_wal" -v s="$used_flushes" -v p="$used_cpu" -v fp="$first_cpu" '
		BEGIN {
			us = 1e6 * (k * c / t - f * c / ft) / (k - f)
			if (us <= 0)
				us = 1e6 * c / t
			p = p > fp ? (p - fp) * k / (k - f) : 0
			print g, c, n, r, us, k * c, w, s, p
		}' >>"$work/results"
}
