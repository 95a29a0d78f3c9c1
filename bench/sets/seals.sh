# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What seals cost: the whole life of messages with the BRIN indexes by which a seal finds new rows (indexed), and with a
# background process that seals each second as well (sealed), beside tables without. Commits that do not wait for the
# disk. What the background process takes is told apart: it hashes each row once, whenever that is.

seals_ways=(outbox indexed sealed)

measure_seals() {
	local round n way batch time
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	time=$(seconds_or 2 0.3)
	condition seals "300 B; $time s; batches of 1 and 100, synchronous_commit = off"
	for ((round = 1; round <= rounds; round++)); do
		say "seals, round $round of $rounds"
		for n in "${workers[@]}"; do
			for batch in 1 100; do
				for way in $(in_turn "$round" "${seals_ways[@]}"); do
					seals_once "$way" $batch "$n" "$round" "$time"
				done
			done
		done
	done
	for n in "${workers[@]}"; do
		for batch in 1 100; do
			target ratio seals "$(seals_case $batch "$n")" 'server us' indexed outbox '<=' 1.10
		done
	done
	compare seals outbox messages/s more
	compare seals outbox 'server us' less
	compare seals outbox 'background us' less
	compare seals outbox 'WAL B' less
}

seals_case() {
	echo "batch $1, $2 worker$([ "$2" = 1 ] || echo s)"
}

# seals_prepare WAY: the indexes that partitions made while seals are on have, or none; what is there is sealed
seals_prepare() {
	local statement
	case $1 in
		outbox) statement="'DROP INDEX IF EXISTS outbox.%s_sealed', relname" ;;
		*) statement="'CREATE INDEX IF NOT EXISTS %s_sealed ON outbox.%1\$s USING brin (%s) WITH (pages_per_range = 32)', relname,
			CASE WHEN relname ~ '^events' THEN 'at' ELSE 'created_at' END" ;;
	esac
	PGDATABASE=outbox query "
		SET client_min_messages = warning;
		DO \$\$
		DECLARE
			leaf record;
		BEGIN
			FOR leaf IN SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r' AND relname ~ '^(messages|attempts|events)_' LOOP
				EXECUTE (SELECT format($statement) FROM (SELECT leaf.relname) r);
			END LOOP;
		END
		\$\$"
	seals_each "$([ "$1" = sealed ] && echo "1 s" || echo 0)"
}

# seals_each INTERVAL
seals_each() {
	PGDATABASE=outbox query "ALTER SYSTEM SET outbox.seal_interval = '$1'" >/dev/null
	PGDATABASE=outbox query "SELECT count(*) FROM outbox.seal(); SELECT pg_reload_conf()" >/dev/null
	await "the interval is $1" is_true "SELECT current_setting('outbox.seal_interval')::interval = '$1'"
}

# seals_once WAY BATCH WORKERS ROUND SECONDS
seals_once() {
	seals_prepare "$1"
	as_variant=$1 conninfo="options='-c synchronous_commit=off'" drive seals "$(seals_case "$2" "$3")" outbox "$4" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=ecd batch="$2" sessions="$3" seconds="$5"
	[ "$1" != sealed ] || seals_each 0
}
