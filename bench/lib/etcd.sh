# etcd, on the same disk, over a Unix socket as PostgreSQL, with a client of ours in
# C (etcd/).  It is twice as fast as Debian's Go library, and up to five times
# as fast as h2load or the JSON gateway, so what is measured is the server.

etcd_missing=

# Sets "etcd_missing" to the reason if it cannot be measured.
start_etcd() {
	local try
	etcd_pid=
	if ! command -v etcd >/dev/null; then
		etcd_missing='no etcd here; Debian has it in etcd-server'
	elif ! command -v gcc >/dev/null; then
		etcd_missing='no gcc for its client'
	else
		step "the build of etcd's client" gcc -O2 -pthread -o "$work/etcd-client" "$here"/etcd/*.c
		install -d -m 700 ${server_user:+-o "$server_user"} "$work/etcd"
		# The ports are not ours to choose; a Unix socket's name ends like one.
		(
			cd "$work/etcd"
			exec "${as_server[@]}" etcd --data-dir "$work/etcd/data" --logger zap --log-level error \
				--listen-client-urls unix://client:0 --advertise-client-urls http://localhost:1 \
				--listen-peer-urls unix://peer:0 --initial-advertise-peer-urls http://localhost:1 \
				--initial-cluster default=http://localhost:1
		) >"$work/etcd.log" 2>&1 </dev/null &
		etcd_pid=$!
		for try in {1..100}; do
			kill -0 "$etcd_pid" 2>/dev/null || break
			! "$work/etcd-client" "$work/etcd/client:0" 1 1 1 check >/dev/null 2>&1 || return 0
			sleep 0.1
		done
		etcd_missing="etcd did not start: $(tail -n 1 "$work/etcd.log")"
	fi
	say "without etcd: $etcd_missing"
}

# "etcd" if it can be measured
etcd_or_nothing() { [ -n "$etcd_missing" ] || echo etcd; }

# Sets "cpu", and "flushes" of its log and its database if curl can ask.
etcd_usage() {
	local line fields
	line=$(<"/proc/$etcd_pid/stat")
	fields=(${line##*) })
	cpu=$(((fields[11] + fields[12]) * 1000000 / clock_ticks))
	flushes=$(curl -s --max-time 2 --unix-socket "$work/etcd/client:0" http://localhost/metrics 2>/dev/null |
		awk '/^etcd_disk_wal_fsync_duration_seconds_count|^etcd_disk_backend_commit_duration_seconds_count/ { s += $2 } END { print NR ? s + 0 : -1 }')
}

etcd_slice() {
	local operation=$1 clients=$2 transactions=$4 cpu_before flushes_before
	[ "$operation" != renew ] || operation=keepalive
	etcd_usage
	cpu_before=$cpu flushes_before=$flushes
	"$work/etcd-client" "$work/etcd/client:0" "$((clients < cores ? clients : cores))" "$clients" "$transactions" \
		"$operation" >"$work/etcd-client.log" 2>&1 || {
		cat "$work/etcd-client.log" >&2
		die "etcd's client failed: $operation"
	}
	tps=$(sed -n 's/^tps = //p' "$work/etcd-client.log")
	etcd_usage
	used_wal=-1 used_flushes=$((flushes < 0 ? -1 : flushes - flushes_before)) used_cpu=$((cpu - cpu_before))
}
