# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# Workers alone: what was enqueued before is claimed and completed, a hundred at a time, by
# two workers whose commits do not wait for the disk. So it shows the work itself.

measure_drain() {
	local round variant count=200000
	[ "$quick" = no ] || count=20000
	condition drain "$count messages of 300 B, batch 100, 2 workers, synchronous_commit = off"
	for ((round = 1; round <= rounds; round++)); do
		say "drain, round $round of $rounds"
		for variant in $(taking_turns "$round"); do
			conninfo="options='-c synchronous_commit=off'" drain_once "$variant" "$round" $count
		done
	done
	targets_drain
}

# drain_once VARIANT ROUND COUNT
drain_once() {
	drive drain load "$1" "$2" '' cycle=e batch=1000 sessions=2 count="$3" drain=0
	# What autovacuum would have done by then; nor shall it come in between.
	PGDATABASE=$1 query "VACUUM ANALYZE"
	drive drain 'batch 100, 2 workers' "$1" "$2" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=cd batch=100 sessions=2 count="$3"
}

targets_drain() {
	local base
	for base in baseline control; do
		compare drain $base messages/s more
		compare drain $base 'server us' less
		compare drain $base 'WAL B' less
	done
	target_if_measured quantile drain 'batch 100, 2 workers' messages/s outbox 0.5 '>=' 40000
	target_if_measured quantile drain 'batch 100, 2 workers' 'server us' outbox 0.5 '<=' 30
	target_if_measured quantile drain 'batch 100, 2 workers' 'WAL B' outbox 0.5 '<=' 900
}
