# Section: memory of a backend and of the server does not grow with calls and terms.

measure_memory() {
	tell '## Memory\n\n'
	memory_of_backend
	memory_of_terms
}

# So many calls in one session, as a client makes them: lines of ten, each with a term
calls() {
	local again="SELECT is_leader FROM leader_renew('memory', :epoch); BEGIN; SELECT leader_fence('memory', :epoch); COMMIT;"
	yes "SELECT epoch FROM leader_acquire('memory', 'holder') \\gset \\\\ $again $again $again SELECT leader_check('memory', :epoch); SELECT leader_check('memory', :epoch); SELECT leader_release('memory', :epoch);" |
		head -n $(($1 / 10))
}

# What the session's memory contexts hold, and what of the process's memory is its own
memory_line() {
	echo "\\o $work/contexts
		SELECT sum(total_bytes) || ' | ' || sum(used_bytes) FROM pg_backend_memory_contexts;
		\\o
		\\! echo \"| $1 | \$(cat $work/contexts) | \$($here/run --private-kb \$BACKEND) |\"
		\\o /dev/null"
}

memory_of_backend() {
	local calls=$((quick ? 100000 : 1000000)) done=0 upto

	tell 'One backend that acquires, renews, fences, checks and releases, each a call from the client, with a term for every ten; bytes in its memory contexts, and kB of its process that are not shared:\n\n'
	tell '| calls | contexts, allocated | contexts, used | process |\n|---|---|---|---|\n'
	{
		echo '\set VERBOSITY terse'
		echo 'SELECT pg_backend_pid() AS pid \gset'
		echo '\setenv BACKEND :pid'
		echo '\o /dev/null'
		for upto in 1000 $((calls / 10)) $((calls / 2)) "$calls"; do
			calls $((upto - done))
			done=$upto
			memory_line "$upto"
		done
	} | sql >"$work/memory" || die 'the session failed'
	tell '%s\n\n' "$(cat "$work/memory")"
}

# The server restarts with little room, which a place lost now and then would fill.
memory_of_terms() {
	local terms=$((quick ? 50000 : 1000000)) places=256 before after

	echo "leader_election.max_leases = $places" >>"$work/data/postgresql.conf"
	restart_server
	ask "SELECT leader_check('bench', 1)" >/dev/null
	tell 'Shared memory with room for %d live leases, of which at most %d are needed, before and after %d terms that were released (80%%), ran out or were rolled back (10%% each); a place that was lost for each thousandth term would have filled it:\n\n' \
		"$places" 209 "$terms"
	before=$(shared_memory)
	pgbench_run 8 "$((terms / 8))" -f "$here/sql/many-terms.sql"
	after=$(shared_memory)
	tell '| | anchor, bytes | places, bytes |\n|---|---|---|\n| before | %s |\n| after | %s |\n\n' "$before" "$after"
	[ "$before" = "$after" ] || die 'shared memory has grown'
}

# The sizes of the anchor and of the segment that a session maps for the places
shared_memory() {
	local anchor segments
	anchor=$(ask "SELECT coalesce(sum(allocated_size), 0) FROM pg_shmem_allocations WHERE name LIKE 'leader_election%'")
	sql >/dev/null <<-SQL
		SELECT pg_backend_pid() AS pid \gset
		\setenv BACKEND :pid
		\! "$here/run" --segments \$BACKEND >"$work/before"
		SELECT leader_check('bench', 1);
		\! "$here/run" --segments \$BACKEND >"$work/after"
	SQL
	segments=$(comm -13 "$work/before" "$work/after")
	echo "$anchor | $([ -z "$segments" ] && echo unknown || stat -c %s $segments | awk '{ s += $1 } END { print s }')"
}
