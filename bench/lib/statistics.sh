# Results and what is computed from them.
#
# "$work/results" has a line for each run: operation, clients, contender, round,
# microseconds per operation, operations, bytes of WAL, flushes, microseconds of
# the server's processor time.  An entry of -1 is unknown.

# The median of the numbers on stdin, and the quartiles
spread() {
	sort -g | awk -v format="${1:-%.2f (%.2f to %.2f)}" '
		function q(p, at, i) { at = p * (NR - 1) + 1; i = int(at); return i < NR ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[NR] }
		{ v[NR] = $1 }
		END { if (NR) printf format, q(0.5), q(0.25), q(0.75) }'
}

median() { spread '%.6f'; }

# times OPERATION CLIENTS CONTENDER: microseconds, a line for each round
times() { awk -F '\t' -v g="$1" -v c="$2" -v n="$3" '$1 == g && $2 == c && $3 == n { print $5 }' "$work/results"; }

# ratios OPERATION CLIENTS FIRST CONTENDER: how many times as long as FIRST's an
# operation takes, a line for each round
ratios() {
	awk -F '\t' -v g="$1" -v c="$2" -v first="$3" -v n="$4" '
		$1 == g && $2 == c && $3 == first { base[$4] = $5 }
		$1 == g && $2 == c && $3 == n { mine[$4] = $5 }
		END { for (r in mine) if (r in base) printf "%.6f\n", mine[r] / base[r] }' "$work/results"
}

# The least of all rounds, for each operation: what the server writes by itself
# only adds.  least OPERATION CLIENTS CONTENDER COLUMN
least() {
	awk -F '\t' -v g="$1" -v c="$2" -v n="$3" -v k="$4" '
		$1 == g && $2 == c && $3 == n && $k >= 0 && (!seen++ || $k / $6 < least) { least = $k / $6 }
		END { if (seen) printf (k == 7 ? "%.0f" : least < 0.1 && least > 0 ? "%.3f" : "%.2f"), least; else printf "–" }' "$work/results"
}

# The server's processor time of an operation, a line for each round
processor() {
	awk -F '\t' -v g="$1" -v c="$2" -v n="$3" \
		'$1 == g && $2 == c && $3 == n && $9 >= 0 { print $9 / $6 }' "$work/results"
}

# The contenders of an operation, in the order in which they were named
contenders_of() { awk -F '\t' -v g="$1" '$1 == g && !seen[$3]++ { print $3 }' "$work/results"; }
clients_of() { awk -F '\t' -v g="$1" '$1 == g && !seen[$2]++ { print $2 }' "$work/results"; }

# The N-th rotation of the other arguments
rotated() {
	local n=$(($1 % ($# - 1)))
	shift
	printf '%s\n' "${@:n+1}" "${@:1:n}"
}

# below A B, below or equal; numbers
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }
divide() { awk -v a="$1" -v b="$2" -v f="${3:-%.2f}" 'BEGIN { printf f, a / b }'; }

# table OPERATION FIRST: what compete has found, for all numbers of clients
table() {
	local operation=$1 first=$2 clients contender
	tell '| clients | | us, median | ratio: median (quartiles) | WAL bytes | flushes | server CPU, us |\n|---|---|---|---|---|---|---|\n'
	for clients in $(clients_of "$operation"); do
		for contender in $(contenders_of "$operation"); do
			tell '| %d | %s | %s | %s | %s | %s | %s |\n' "$clients" "$(title "$operation" "$contender")" \
				"$(times "$operation" "$clients" "$contender" | spread '%.1f')" \
				"$(ratios "$operation" "$clients" "$first" "$contender" | spread)" \
				"$(least "$operation" "$clients" "$contender" 7)" \
				"$(least "$operation" "$clients" "$contender" 8)" \
				"$(processor "$operation" "$clients" "$contender" | spread '%.1f' | sed 's/^$/–/')"
		done
	done
	tell '\n'
}
