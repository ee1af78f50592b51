# Section: what grows with the number of elections (bench/scale, on servers of its own).

measure_scale() {
	tell '## Scale\n\n'
	env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE PG_CONFIG="$pg_config" \
		"$here/scale" ${small:+--quick} >"$work/scale" || die 'bench/scale failed'
	tell '%s\n\n' "$(cat "$work/scale")"
}
