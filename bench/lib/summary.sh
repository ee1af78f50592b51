# The summary: every goal with what was found, the field beside it, and a plot.

# us OPERATION CLIENTS CONTENDER: the median
us() { times "$@" | median; }

have() { [ -n "$(times "$1" "${client_counts%% *}" "$2" | head -n 1)" ]; }

# verdict FOUND RELATION LIMIT
verdict() {
	local met=missed
	[ -n "$1" ] || { echo 'not measured'; return; }
	case $2 in
		at-most) at_most "$1" "$3" && met=met ;;
		at-least) at_most "$3" "$1" && met=met ;;
	esac
	echo "$met"
}

# row WHAT FOUND GOAL VERDICT
row() { printf '| %s | %s | %s | %s |\n' "$@"; }

# For all numbers of clients, with slashes between: each_clients FUNCTION ARGUMENTS
each_clients() {
	local function=$1 clients line= value
	shift
	for clients in $client_counts; do
		value=$("$function" "$clients" "$@")
		line+=${line:+ / }$value
	done
	echo "$line"
}

ratio_at() { ratios "$2" "$1" "$3" "$4" | spread '%.2f (%.2f–%.2f)'; }
rate_at() { awk -v t="$(us "$2" "$1" "$3")" -v c="$1" 'BEGIN { printf "%.3g", 1000 * c / t }'; }

# The greatest, or least, of the ratios' medians
extreme() {
	local order=$1 clients
	shift
	for clients in $client_counts; do
		ratios "$1" "$clients" "$2" "$3" | median
		echo
	done | sort $order | sed '/^$/d' | head -n 1
}

# The fastest row-based contender of acquire and release: of those that are logged and
# notify, or do not, or are not logged, and notify.  fastest_peer CLIENTS KIND
fastest_peer() {
	local contender peers
	case $2 in
		notifying) peers='upsert-notify river oban' ;;
		silent) peers='upsert shedlock pg_lease' ;;
		unlogged) peers='river-unlogged oban-unlogged' ;;
	esac
	for contender in $peers; do
		echo "$(us term "$1" "$contender") $contender"
	done | sort -g | head -n 1 | cut -d ' ' -f 2
}

# How many times as fast as the fastest peer: term_lead CLIENTS OURS KIND
term_lead() { ratios term "$1" "$2" "$(fastest_peer "$1" "$3")" | spread '%.2f (%.2f–%.2f)'; }

verdict_of_term() {
	local clients
	verdict "$(for clients in $client_counts; do
		ratios term "$clients" "$1" "$(fastest_peer "$clients" "$2")" | median
		echo
	done | sort -g | sed '/^$/d' | head -n 1)" at-least 1
}

goals_of_leases() {
	local wal
	if have renew ours && have renew select-1; then
		row 'renewal, times as long as `SELECT 1`' "$(each_clients ratio_at renew select-1 ours)" 'at most 1.1' \
			"$(verdict "$(extreme -gr renew select-1 ours)" at-most 1.1)"
	fi
	if have renew ours-all; then
		row 'the same, when all columns of the answer are asked for' "$(each_clients ratio_at renew select-1 ours-all)" '–' '–'
	fi
	if have lose ours; then
		row 'losing bid, times as long as `SELECT 1`' "$(each_clients ratio_at lose select-1 ours)" 'at most 1.1' \
			"$(verdict "$(extreme -gr lose select-1 ours)" at-most 1.1)"
	fi
	if have lose ours-all; then
		row 'the same, when all columns of the answer are asked for' "$(each_clients ratio_at lose select-1 ours-all)" '–' '–'
	fi
	if have renew ours && have lose ours; then
		wal=$(for clients in $client_counts; do
			least renew "$clients" ours 7
			echo
			least lose "$clients" ours 7
			echo
		done | sort -gr | head -n 1)
		row 'renewal and losing bid, bytes of WAL' "$wal" 0 "$(verdict "$wal" at-most 0)"
	fi
	if have renew etcd; then
		row 'renewals, times as many as etcd keepalives' "$(each_clients ratio_at renew ours etcd)" 'at least 4' \
			"$(verdict "$(extreme -g renew ours etcd)" at-least 4)"
	fi
	if have term ours; then
		row 'acquire + release, times as fast as the fastest logged peer that notifies, too' "$(each_clients term_lead ours notifying)" 'above 1' \
			"$(verdict_of_term ours notifying)"
		row 'the same with `leader_election.notify` off, the fastest logged peer that does not' "$(each_clients term_lead ours-quiet silent)" 'above 1' \
			"$(verdict_of_term ours-quiet silent)"
		row 'the same with `leader_election.history` off, too' "$(each_clients term_lead ours-bare silent)" – –
		row 'the same as the first, the fastest UNLOGGED peer, whose rows a crash takes' "$(each_clients term_lead ours unlogged)" 'above 1' \
			"$(verdict_of_term ours unlogged)"
	fi
}

goals_of_sections() {
	local found first after passed holders_cpu holders_flushes lease session killed
	if [ -n "$(times 'renew, held' 1 ours)" ]; then
		first=$(us 'renew, fresh' 1 ours)
		found=$(times 'renew, held' 1 ours | awk -v b="$first" '{ print $1 / b }' | spread '%.2f (%.2f–%.2f)')
		passed=$(awk '$1 == "ours" { print $2 }' "$work/passed")
		after=$(snapshot_ratio)
		row "renewal after $passed under a held snapshot, times as long as before; relative to \`SELECT 1\`" "$found; $(divide "$after" 1)" 'at most 1.1' \
			"$(verdict "$after" at-most 1.1)"
		row 'the same of row leases, from the least to the most' "$(snapshot_of_rows)" '' ''
	fi
	if [ -n "$(times all 1 ours)" ]; then
		found=$(times all 1 ours | awk '{ print $1 / 1000 }' | spread '%.3f (%.3f–%.3f)')
		row '`leader_renew_all` of 1000 leases, us for each' "$found" 'below 0.15' "$(verdict "${found%% *}" at-most 0.15)"
	fi
	if [ -e "$work/holders" ]; then
		read -r holders_cpu holders_flushes <"$work/holders"
		row '10 000 leases of 50 holders, TTL 10 s: % of a core; flushes' "$holders_cpu; $holders_flushes" 'below 5; 0' \
			"$([ "$holders_flushes" -eq 0 ] && verdict "$holders_cpu" at-most 5 || echo missed)"
	fi
	if have insert fence_none; then
		found=$(each_clients ratio_at insert fence_statement fence_none)
		row 'fenced transaction of one row, share of the unfenced rate' "$found" 'at least 0.85 (1 client)' \
			"$(verdict "$(ratios insert 1 fence_statement fence_none | median)" at-least 0.85)"
		found=$(each_clients ratio_at 'insert, begun' begun-fence begun)
		row 'the same with `leader_fence` in the transaction' "$found" 'at least 0.85 (1 client)' \
			"$(verdict "$(ratios 'insert, begun' 1 begun-fence begun | median)" at-least 0.85)"
	fi
	if [ -n "$(times load 1 fence_none)" ]; then
		row 'load by one statement, times as long as unfenced: by statement; by row' \
			"$(ratio_at 1 load fence_none fence_statement); $(ratio_at 1 load fence_none fence_given)" '' ''
	fi
	if [ -e "$work/hand-over" ]; then
		lease=$(hand_over_ratio 'lease, release' 'advisory lock, unlock')
		session=$(hand_over_ratio 'session, release' 'advisory lock, unlock')
		killed=$(hand_over_ratio 'session, kill -9' 'advisory lock, kill -9')
		row "hand-over, times as long as that of a blocked advisory lock ($(divide "$(hand_over_median 'advisory lock, unlock')" 1) ms; $(divide "$(hand_over_median 'advisory lock, kill -9')" 1) ms after kill -9): lease released; session released; session killed" \
			"$(divide "$lease" 1); $(divide "$session" 1); $(divide "$killed" 1)" 'at most 1.5' \
			"$(verdict "$(printf '%s\n' "$lease" "$session" "$killed" | sort -gr | head -n 1)" at-most 1.5)"
	fi
	if [ -e "$work/takeover" ]; then
		row 'takeover under 32 fenced writers, ms: median; p99 (after release)' \
			"$(awk -F ' *[|] *' '$2 == "takeover after release" { print $4 "; " $5 }' "$work/takeover")" '' ''
	fi
}

hand_over_ratio() { divide "$(hand_over_median "$1")" "$(hand_over_median "$2")" %.6f; }

# How much longer a renewal takes than before, SELECT 1 having been as fast then
snapshot_ratio() {
	awk -v a="$(us 'renew, fresh' 1 ours)" -v b="$(us 'renew, held' 1 ours)" \
		-v c="$(us 'renew, fresh' 1 select-1)" -v d="$(us 'renew, held' 1 select-1)" 'BEGIN { printf "%.6f", (b / d) / (a / c) }'
}

snapshot_of_rows() {
	local contender
	for contender in upsert-async river-async oban-async shedlock-async pg_lease-async; do
		grep -q "^$contender" "$work/passed" || continue
		awk -v a="$(us 'renew, fresh' 1 "$contender")" -v b="$(us 'renew, held' 1 "$contender")" \
			-v n="$(awk -v c="$contender" '$1 == c { print $2 }' "$work/passed")" 'BEGIN { printf "%.1f after %d\n", b / a, n }'
	done | sort -g | sed -n '1p;$p' | paste -sd ',' | sed 's/,/ to /'
}

# One line for each contender: thousands of operations in a second
field_table() {
	local contender clients=8
	case " $client_counts " in *" 8 "*) ;; *) clients=${client_counts##* } ;; esac
	printf '| %d clients, thousands of operations a second | renewal | losing bid | acquire + release | WAL bytes of each | flushes of each | server CPU of a renewal, us |\n|---|---|---|---|---|---|---|\n' "$clients"
	for contender in select-1 ours upsert river oban shedlock pg_lease advisory etcd; do
		printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$(field_title "$contender")" \
			"$(field_rate renew)" "$(field_rate lose)" "$(field_rate term)" \
			"$(field_least 7)" "$(field_least 8)" "$(processor renew "$clients" "$contender" | spread '%.0f' | sed 's/^$/–/')"
	done
}

field_title() {
	case $1 in
		ours) echo '**leader_election**' ;;
		etcd) echo 'etcd 3.4' ;;
		*) title '' "$1" ;;
	esac
}

field_rate() {
	[ -n "$(times "$1" "$clients" "$contender" | head -n 1)" ] && rate_at "$clients" "$1" "$contender" || echo '–'
}

field_least() { echo "$(least renew "$clients" "$contender" "$1") / $(least lose "$clients" "$contender" "$1") / $(least term "$clients" "$contender" "$1")"; }

summarize() {
	[ -z "$smoke" ] || printf 'These figures mean nothing: only whether everything works was tried.\n\n'
	printf 'Measured on %s by `%s`: %s; %s; fdatasync of 8 kB: %s. Ratios are medians (quartiles) of %d interleaved rounds, with %s clients.\n\n' \
		"$(date +%F)" "$command_line" "$(server_version)" "$(machine)" "$fdatasync" "$rounds" "${client_counts// / / }"
	printf '| | found | goal | |\n|---|---|---|---|\n'
	goals_of_leases
	goals_of_sections
	printf '\n'
	if have renew ours && have term ours && have lose ours; then
		field_table
		printf '\nRiver, Oban, ShedLock and pg_lease are equivalents that were written from descriptions, here with logged tables and all of a transaction in one round trip.%s\n' \
			"${etcd_missing:+ Without etcd: $etcd_missing.}"
	fi
	[ ! -e "$work/skipped" ] || sed 's/^/Skipped: /' "$work/skipped"
	[ -z "$failed" ] || printf 'Failed:%s\n' "$failed"
}

# One colour for each contender, in all parts of the plot
line_type() {
	local number=1 contender
	for contender in ours select-1 upsert river oban shedlock pg_lease advisory etcd; do
		[ "$contender" != "$1" ] || break
		number=$((number + 1))
	done
	echo "$number"
}

# Operations per second of the field, by the number of clients
plot() {
	local operation contender
	if ! command -v gnuplot >/dev/null; then
		say 'no plot: there is no gnuplot; Debian has it in gnuplot-nox'
		return
	fi
	mkdir "$work/plot"
	for operation in renew lose term; do
		for contender in $(contenders_of "$operation"); do
			for clients in $client_counts; do
				echo "$clients $(rate_at "$clients" "$operation" "$contender")"
			done >"$work/plot/$operation.$contender"
		done
	done
	{
		echo "set terminal svg size 1080,420 font 'sans,12' background '#ffffff'"
		echo "set output '$1'"
		printf "set linetype %d linecolor rgb '%s'\n" 1 '#d62728' 2 '#7f7f7f' 3 '#1f77b4' 4 '#ff7f0e' 5 '#9467bd' 6 '#8c564b' 7 '#17becf' 8 '#bcbd22' 9 '#000000'
		echo 'set multiplot layout 1,3'
		echo 'set logscale xy; set grid; set key bottom right font ",9" spacing 0.9; set xrange [0.9:36]; set yrange [0.1:200]'
		echo "set xtics ($(for clients in $client_counts; do printf "%s'%s' %s" "${comma-}" "$clients" "$clients"; comma=', '; done)); set xlabel 'clients'"
		echo "set ylabel 'thousands a second'"
		for operation in renew lose term; do
			[ -n "$(contenders_of "$operation")" ] || continue
			echo "set title '$(heading_of "$operation")'"
			printf 'plot '
			comma=
			for contender in $(contenders_of "$operation"); do
				case $contender in *-* | acquire) [ "$contender" = select-1 ] || continue ;; esac
				printf "%s'%s' with linespoints linewidth %d linetype %d title '%s' noenhanced" "$comma" "$work/plot/$operation.$contender" \
					"$([ "$contender" = ours ] && echo 3 || echo 1)" "$(line_type "$contender")" "$(field_title "$contender" | tr -d '`*')"
				comma=', '
			done
			printf '\n'
		done
	} >"$work/plot/script"
	gnuplot "$work/plot/script" 2>"$work/plot/errors" || { cat "$work/plot/errors" >&2; die 'gnuplot failed'; }
}
