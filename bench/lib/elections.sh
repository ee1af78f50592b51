# Section: very many elections in one transaction.

# A database of its own, as ten thousand elections would slow down those who look
# at all of them.
measure_elections() {
	local contenders=(fence_none fence_given hand_given) counts=(1 64 1000 10000) turns=$((quick ? 9 : 31))
	local count contender

	tell '## Very many elections in one transaction\n\n%d times a transaction that inserts a row for each of so many elections of a template, each with its epoch; `synchronous_commit` off.  Memory is what the contexts of the backend hold more before the commit than before the statement.  Up to 64 elections are locked one by one.\n\n' "$turns"
	ask 'CREATE DATABASE elections'
	PGDATABASE=elections step 'the setup of very many elections' sql -f "$here/sql/elections-setup.sql"
	PGDATABASE=elections check_refusal fence_given '(1, 1)'
	PGDATABASE=elections check_refusal hand_given '(1, 1)'
	{
		echo 'CREATE TEMP TABLE measured (contender text, n int, round int, insert_us float8, commit_us float8, total float8, used float8);'
		echo 'DO $$ DECLARE a timestamptz; b timestamptz; c timestamptz; d timestamptz;'
		echo 'total float8; used float8; total_before float8; used_before float8; BEGIN'
		echo "FOR round IN -1..$((turns - 1)) LOOP"
		for count in "${counts[@]}"; do
			for contender in "${contenders[@]}"; do
				elections_turn "$contender" "$count"
			done
		done
		echo 'END LOOP; END $$;'
		echo 'SELECT * FROM measured WHERE round >= 0;'
	} | PGDATABASE=elections PGOPTIONS='-c synchronous_commit=off' sql -F $'\t' >"$work/elections" || die 'the session failed'
	ask 'DROP DATABASE elections'

	tell '| elections | | insert, us per row | commit, us | memory more than the first, kB | used of it, bytes per election |\n|---|---|---|---|---|---|\n'
	for count in "${counts[@]}"; do
		for contender in "${contenders[@]}"; do
			tell '| %d | %s | %s | %s | %s | %s |\n' "$count" "$(fence_title "$contender")" \
				"$(elections_column "$contender" "$count" 4 "$count" | spread '%.2f (%.2f to %.2f)')" \
				"$(elections_column "$contender" "$count" 5 1 | spread '%.1f (%.1f to %.1f)')" \
				"$(elections_memory "$contender" "$count" 6 1024 | spread '%.0f')" \
				"$(elections_memory "$contender" "$count" 7 "$count" | spread '%.0f')"
		done
	done
	tell '\n'
}

elections_turn() {
	local memory='SELECT sum(total_bytes), sum(used_bytes) INTO'
	cat <<-SQL
		PERFORM set_config('leader_election.enforce', 'off', true);
		TRUNCATE $1.ledger; COMMIT;
		$memory total_before, used_before FROM pg_backend_memory_contexts;
		a := clock_timestamp();
		INSERT INTO $1.ledger SELECT shard, epoch FROM token WHERE shard < $2;
		b := clock_timestamp();
		$memory total, used FROM pg_backend_memory_contexts;
		c := clock_timestamp(); COMMIT; d := clock_timestamp();
		INSERT INTO measured VALUES ('$1', $2, round, 1e6 * extract(epoch FROM b - a),
			1e6 * extract(epoch FROM d - c), total - total_before, used - used_before);
		COMMIT;
	SQL
}

# CONTENDER COUNT COLUMN UNIT: a line for each round
elections_column() {
	awk -F '\t' -v n="$1" -v c="$2" -v k="$3" -v u="$4" '$1 == n && $2 == c { print $k / u }' "$work/elections"
}

# The same, as a difference to the first contender
elections_memory() {
	awk -F '\t' -v n="$1" -v c="$2" -v k="$3" -v u="$4" '
		$2 == c && $1 == "fence_none" { base[$3] = $k }
		$2 == c && $1 == n { mine[$3] = $k }
		END { for (r in mine) print (mine[r] - base[r]) / u }' "$work/elections"
}

