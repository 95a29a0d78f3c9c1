# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What audit events cost: the whole life of messages in a queue with audit_events, beside the same queue without. Commits
# that do not wait for the disk.

audit_ways=(outbox audited)

measure_audit() {
	local round n way batch time
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	time=$(seconds_or 2 0.3)
	condition audit "300 B; $time s; batches of 1 and 100, synchronous_commit = off"
	for ((round = 1; round <= rounds; round++)); do
		say "audit, round $round of $rounds"
		for n in "${workers[@]}"; do
			for batch in 1 100; do
				for way in $(in_turn "$round" "${audit_ways[@]}"); do
					audit_once "$way" $batch "$n" "$round" "$time"
				done
			done
		done
	done
	PGDATABASE=outbox query "SELECT outbox.alter_queue('bench', audit_events => false)" >/dev/null
	for n in "${workers[@]}"; do
		target ratio audit "$(audit_case 100 "$n")" 'server us' audited outbox '<=' 1.03
		target ratio audit "$(audit_case 1 "$n")" 'server us' audited outbox '<=' 1.20
	done
	compare audit outbox messages/s more
	compare audit outbox 'server us' less
	compare audit outbox 'WAL B' less
}

audit_case() {
	echo "batch $1, $2 worker$([ "$2" = 1 ] || echo s)"
}

# audit_once WAY BATCH WORKERS ROUND SECONDS
audit_once() {
	PGDATABASE=outbox query "SELECT outbox.alter_queue('bench', audit_events => $([ "$1" = audited ] && echo true || echo false))" >/dev/null
	as_variant=$1 conninfo="options='-c synchronous_commit=off'" drive audit "$(audit_case "$2" "$3")" outbox "$4" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=ecd batch="$2" sessions="$3" seconds="$5"
}
