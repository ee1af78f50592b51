# Sections: from the end of a term to the next leader.

have_dbd_pg() { perl -MDBD::Pg -e 1 2>/dev/null; }

# skip SECTION REASON: told in the tables and in the summary
skip() {
	tell '## %s\n\nSkipped: %s.\n\n' "$1" "$2"
	say "skipped: $1: $2"
	printf '%s: %s\n' "$1" "$2" >>"$work/skipped"
}

measure_hand-over() {
	local n=$((quick ? 30 : 100)) name rest

	[ -z "$smoke" ] || n=1
	if ! have_dbd_pg; then
		skip 'Hand-over' 'no DBD::Pg for perl here; Debian has it in libdbd-pg-perl'
		return
	fi
	PGOPTIONS='-c search_path=logged,public' perl "$here/hand-over.pl" "$n" >"$work/hand-over" || die 'hand-over.pl failed'
	[ -n "$etcd_missing" ] || etcd_hand_over "$n" >>"$work/hand-over"
	tell '## Hand-over\n\nMilliseconds from the end of a term until the next leader, who waits, is told; of a lease that ran out, from the earliest moment at which it can have. pg_lease looks every 50 ms inside the server. River is notified, and looks at once here (its clients wait up to 50 ms more); without a notification it looks every 5 s. Oban looks every 30 s, and is notified as River. ShedLock and a hand-written upsert do not wait at all. etcd watches, and puts its key when the leader'"'"'s is gone.\n\n'
	tell '| | times | median (quartiles) | p99 |\n|---|---|---|---|\n'
	while IFS=$'\t' read -r name rest; do
		tell '| %s | %d | %s | %s |\n' "$name" "$(wc -w <<<"$rest")" \
			"$(tr '\t' '\n' <<<"$rest" | spread)" \
			"$(tr '\t' '\n' <<<"$rest" | sort -g | awk '{ v[NR] = $1 } END { i = int(0.99 * NR + 0.999); printf "%.2f", v[i] }')"
	done <"$work/hand-over"
	tell '\n'
}

etcd_hand_over() {
	local socket=$work/etcd/client:0
	printf 'etcd, delete\t%s\n' "$("$work/etcd-client" "$socket" hand-over "$1" release | paste -sd '\t')"
	printf 'etcd, ran out\t%s\n' "$("$work/etcd-client" "$socket" hand-over "$((smoke ? 1 : quick ? 2 : 10))" expiry | paste -sd '\t')"
}

# hand_over_median NAME
hand_over_median() {
	awk -F '\t' -v n="$1" '$1 == n { for (i = 2; i <= NF; i++) print $i }' "$work/hand-over" | median
}

measure_takeover() {
	local n=$((quick ? 20 : 100))

	[ -z "$smoke" ] || n=1
	if ! have_dbd_pg; then
		skip 'Takeover under load' 'no DBD::Pg for perl here; Debian has it in libdbd-pg-perl'
		return
	fi
	PGOPTIONS= perl "$here/takeover.pl" "$bindir/pgbench" "$n" >"$work/takeover" || die 'takeover.pl failed'
	tell '## Takeover under load\n\nThe leader has 32 connections that commit fenced writes without pause. Milliseconds until the next leader is told.\n\n'
	tell '%s\n\n' "$(cat "$work/takeover")"
}
