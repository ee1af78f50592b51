# Sections: what the fence costs, beside no fence and one that is written by hand.

fence_title() {
	case $1 in
		fence_none) echo 'no trigger' ;;
		fence_statement) echo '**fence, by statement**' ;;
		fence_off) echo 'a row trigger that returns at once' ;;
		fence_given) echo '**fence by row, epoch given**' ;;
		fence_stamped) echo '**fence by row, epoch stamped**' ;;
		fence_one) echo '**fence by row, template, one shard**' ;;
		fence_many) echo '**fence by row, template, 16 shards in turn**' ;;
		fence_call) echo '`leader_fence()`, no trigger' ;;
		hand_statement) echo 'PL/pgSQL, by statement' ;;
		hand_given) echo 'PL/pgSQL, epoch given' ;;
		hand_stamped) echo 'PL/pgSQL, epoch stamped' ;;
		hand_one) echo 'PL/pgSQL, template, one shard' ;;
		hand_many) echo 'PL/pgSQL, template, 16 shards in turn' ;;
		parts_none) echo 'four partitions, no trigger' ;;
		parts_off) echo 'four partitions, a row trigger that returns at once' ;;
		parts_fence) echo 'four partitions, fence by row' ;;
		parts_hand) echo 'four partitions, PL/pgSQL by row' ;;
		begun) echo 'no fence, the same transaction' ;;
		begun-fence) echo '**the transaction calls `leader_fence`**' ;;
		*) echo "$1" ;;
	esac
}

# Transactions of one row from clients.  The token of a protected table comes from a
# setting, that of the others from a call in a transaction, beside which one with
# SELECT 1 stands, so that both have as many round trips.
measure_fence() {
	local contenders=(fence_none fence_statement hand_statement fence_given hand_given) clients contender

	check_refusals "${contenders[@]}"
	for contender in "${contenders[@]}"; do
		sed "s/ ledger/ $contender&/; s/ ledger/.ledger/" "$here/sql/insert.sql" >"$work/insert.$contender.sql"
	done
	for contender in begun begun-fence; do
		sed "s/EPOCH/$epoch/" "$here/sql/insert.$contender.sql.in" >"$work/insert.$contender.sql"
	done
	session_options=$fence_options
	for clients in $client_counts; do
		compete insert "$clients" "$rounds" "${contenders[@]}"
		compete 'insert, begun' "$clients" "$rounds" begun begun-fence
	done
	session_options=
	tell '## Fenced transactions of one row\n\n`synchronous_commit` off.\n\n'
	table insert fence_none
	tell 'A transaction that is begun and committed by calls of their own:\n\n'
	table 'insert, begun' begun
}

# One statement that brings very many rows
measure_load() {
	local contenders=(fence_none fence_statement hand_statement fence_given hand_given fence_one hand_one)
	local rows=$((quick ? 100000 : 1000000)) turns=$((quick ? 3 : 5)) bulk
	local empty="PERFORM set_config('leader_election.enforce', 'off', true); TRUNCATE FENCE.ledger;"

	[ -z "$smoke" ] || rows=1000 turns=1
	check_refusals "${contenders[@]}"
	bulk="INSERT INTO FENCE.ledger (id, shard, amount) SELECT g, g & SHARDS, 1 FROM generate_series(1, $rows) g"
	tell '## A load of %d rows\n\n%d times an `INSERT ... SELECT`; microseconds per row:\n\n' "$rows" "$turns"
	take_turns load 1 "$turns" "$bulk" "$empty" "${contenders[@]}"
	fence_table load "$rows" "${contenders[@]}"
}

# take_turns GROUP COUNT ROUNDS STATEMENT BEFORE CONTENDER...: one session executes
# STATEMENT COUNT times for each contender in turn, in each round, and BEFORE before
# that, which is not measured.  In both, FENCE stands for the contender's schema, and
# SHARDS for a mask that makes a row's number its shard.  Appends times to the
# results, and processor times as those of "GROUP, processor".
take_turns() {
	local group=$1 count=$2 rounds=$3 statement=$4 before=$5 rotation contender
	shift 5
	{
		echo 'CREATE TEMP TABLE measured (contender text, round int, us float8, processor_us float8);'
		echo 'DO $$ DECLARE started timestamptz; us float8; processor float8; BEGIN'
		echo "FOR round IN -1..$((rounds - 1)) LOOP"
		for ((rotation = 0; rotation < $#; rotation++)); do
			echo "IF (round + 1) % $# = $rotation THEN"
			for contender in $(rotated "$rotation" "$@"); do
				turn "$contender" "$count" "$statement" "$before"
			done
			echo 'END IF;'
		done
		echo 'END LOOP; END $$;'
		echo "SELECT '$group', 1, contender, round, us FROM measured WHERE round >= 0;"
		echo "SELECT '$group, processor', 1, contender, round, processor_us FROM measured
			WHERE round >= 0 AND processor_us IS NOT NULL;"
	} | PGOPTIONS=$fence_options sql -F $'\t' >>"$work/results" || die 'the session failed'
}

turn() {
	local contender=$1 count=$2 statement=$3 before=$4 schema=$1 shards=0 call= enforce=on
	case $contender in
		fence_call) schema=fence_none call="PERFORM leader_fence('bench', $epoch);" ;;
		*_many | parts_*) shards=15 ;;
	esac
	case $contender in
		*_off) enforce=off ;;
	esac
	statement=${statement//SHARDS/$shards}
	echo "${before//FENCE/$schema} COMMIT;"
	echo "PERFORM set_config('leader_election.enforce', '$enforce', false);"
	echo 'processor := processor_time(); COMMIT; started := clock_timestamp();'
	echo "FOR i IN 1..$count LOOP $call ${statement//FENCE/$schema}; COMMIT; END LOOP;"
	echo 'us := 1e6 * extract(epoch FROM clock_timestamp() - started);'
	echo "INSERT INTO measured VALUES ('$contender', round, us, processor_time() - processor); COMMIT;"
}

# fence_table GROUP UNITS CONTENDER...: times are of that many units.
fence_table() {
	local group=$1 units=$2 first=$3 contender
	shift 2
	tell '| | us: median (quartiles) | us more than the first | the same in processor time | ratio |\n|---|---|---|---|---|\n'
	for contender in "$@"; do
		tell '| %s | %s | %s | %s | %s |\n' "$(fence_title "$contender")" \
			"$(times "$group" 1 "$contender" | awk -v u="$units" '{ print $1 / u }' | spread '%.3f (%.3f to %.3f)')" \
			"$(differences "$group" "$units" "$first" "$contender" | spread '%+.3f (%+.3f to %+.3f)')" \
			"$(differences "$group, processor" "$units" "$first" "$contender" | spread '%+.3f (%+.3f to %+.3f)')" \
			"$(ratios "$group" 1 "$first" "$contender" | spread)"
	done
	tell '\n'
}

# differences GROUP UNITS FIRST CONTENDER: microseconds more than FIRST's, a line for
# each round
differences() {
	awk -F '\t' -v g="$1" -v u="$2" -v first="$3" -v n="$4" '
		$1 == g && $3 == first { base[$4] = $5 }
		$1 == g && $3 == n { mine[$4] = $5 }
		END { for (r in mine) printf "%.6f\n", (mine[r] - base[r]) / u }' "$work/results"
}

# A contender that let a stale writer pass would be none.
check_refusals() {
	local contender row stale
	stale=$(sed -E 's/=[0-9]{2,}/=1/g' <<<"$fence_options")
	for contender in "$@"; do
		case $contender in
			*_none | *_off) continue ;;
			*_given) row='(1, 0, 1, 1)' ;;
			*_stamped) row='(1, 0, 1, NULL)' ;;
			*) row='(1, 0, 1, DEFAULT)' ;;
		esac
		check_refusal "$contender" "$row" "$stale"
	done
}

check_refusal() {
	PGOPTIONS=${3-} ask "INSERT INTO $1.ledger VALUES $2" >"$work/refusal" 2>&1 || true
	grep -q 'ERROR:  stale epoch' "$work/refusal" || die "a stale write was not refused: $(fence_title "$1")"
}

# All ways to protect a table, partitions and COPY included; takes a quarter of an hour.
measure_rows() {
	local plain=(fence_none fence_statement hand_statement fence_off fence_given hand_given fence_stamped
		hand_stamped fence_one hand_one fence_many hand_many)
	local parts=(parts_none parts_off parts_fence parts_hand)
	local shards rows=$((quick ? 50000 : 1000000)) turns=$((quick ? 9 : 11))
	local empty="PERFORM set_config('leader_election.enforce', 'off', true); TRUNCATE FENCE.ledger;"
	local bulk

	check_refusals "${plain[@]}" "${parts[@]}"
	tell '## The fence, in all its forms\n\nGoals: nothing by statement, 0.15 us for a row by row, 5 us for a transaction.  By row the server itself does more, which the row trigger shows that returns at once: it forms each row before it calls a trigger, looks at the constraint of a partition for each row, and stores the rows of a `COPY` one by one.\n\n'

	bulk="INSERT INTO FENCE.ledger (id, shard, amount) SELECT g, g & SHARDS, 1 FROM generate_series(1, $rows) g"
	tell '%d times an `INSERT ... SELECT` of %d rows; microseconds per row:\n\n' "$turns" "$rows"
	take_turns rows 1 "$turns" "$bulk" "$empty" "${plain[@]}"
	fence_table rows "$rows" "${plain[@]}"
	take_turns 'rows, parts' 1 "$turns" "$bulk" "$empty" "${parts[@]}"
	fence_table 'rows, parts' "$rows" "${parts[@]}"

	for shards in 0 15; do
		seq "$rows" | awk -v OFS='\t' -v n="$((shards + 1))" '{ print $1, $1 % n, 1 }' >"$work/rows-$shards"
	done
	bulk="COPY FENCE.ledger (id, shard, amount) FROM '$work/rows-SHARDS'"
	tell '%d times a `COPY` of %d rows from a file; microseconds per row:\n\n' "$turns" "$rows"
	take_turns copy 1 "$turns" "$bulk" "$empty" "${plain[@]}"
	fence_table copy "$rows" "${plain[@]}"
	take_turns 'copy, parts' 1 "$turns" "$bulk" "$empty" "${parts[@]}"
	fence_table 'copy, parts' "$rows" "${parts[@]}"

	turns=$((quick ? 100 : 500))
	bulk='INSERT INTO FENCE.ledger (id, shard, amount) VALUES (i, i & SHARDS, 1)'
	tell '%d times 50 transactions of one row each, without client; `synchronous_commit` off; microseconds per transaction:\n\n' "$turns"
	take_turns transactions 50 "$turns" "$bulk" '' "${plain[@]}" fence_call
	fence_table transactions 50 "${plain[@]}" fence_call
	take_turns 'transactions, parts' 50 "$turns" "$bulk" '' "${parts[@]}"
	fence_table 'transactions, parts' 50 "${parts[@]}"
}
