# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# The same as lifecycle, two workers at full speed, while a transaction stays open: vacuum
# may not remove what is finished, and each further walk over it gets slower. Held by
# a reader (REPEATABLE READ) or by a producer that has enqueued and does not commit; what it
# enqueued must be delivered in the end all the same. Not held at all, for comparison: in a
# young database any load gets dearer with the minutes, by vacuum and by memory that is used
# for the first time.

measure_snapshot() {
	local round holder variant time window
	time=$(seconds_or 180 12)
	window=$(perl -e 'print $ARGV[0] >= 40 ? 10 : $ARGV[0] / 4' "$time")
	condition snapshot "$time s, of which the first and last $window s are compared; 300 B, batch 100, 2 workers"
	condition 'snapshot rounds' "$snapshot_rounds"
	local -A unheld=()	# last messages/s of each variant, in this round
	for ((round = 1; round <= snapshot_rounds; round++)); do
		for holder in "${holds[@]}"; do
			for variant in $(taking_turns "$round"); do
				say "snapshot, round $round of $snapshot_rounds: $holder, $variant"
				snapshot_once "$holder" "$variant" "$round"
			done
		done
	done
	targets_snapshot
}

snapshot_case() {
	case $1 in
		nobody) echo 'held by nobody' ;;
		*) echo "held by a $1" ;;
	esac
}

# snapshot_once HOLDER VARIANT ROUND
snapshot_once() {
	local case
	case=$(snapshot_case "$1")
	PGDATABASE=$2 query "VACUUM ANALYZE"	# of what the run before left
	drive snapshot "$case" "$2" "$3" \
		'first messages/s,last messages/s,first claim p99 ms,last claim p99 ms,MB/million,messages/s,server us' \
		cycle=ecd batch=100 sessions=2 seconds="$time" window="$window" hold="${1/reader/snapshot}"
	record snapshot "$case" "$2" "$3" 'last/first messages/s' \
		"$(quotient "${figures[last messages/s]}" "${figures[first messages/s]}")"
	record snapshot "$case" "$2" "$3" 'last/first claim p99' \
		"$(quotient "${figures[last claim p99 ms]}" "${figures[first claim p99 ms]}")"
	if [ "$1" = nobody ]; then
		unheld[$2]=${figures[last messages/s]}
	elif [ -n "${unheld[$2]-}" ]; then
		record snapshot "$case" "$2" "$3" 'last/unheld last messages/s' \
			"$(quotient "${figures[last messages/s]}" "${unheld[$2]}")"
	fi
}

targets_snapshot() {
	local holder case
	for holder in "${holds[@]}"; do
		[ "$holder" != nobody ] || continue
		case=$(snapshot_case "$holder")
		target_if_measured quantile snapshot "$case" 'last/first messages/s' outbox 0.5 '>=' 0.9
		target_if_measured quantile snapshot "$case" 'last/unheld last messages/s' outbox 0.5 '>=' 0.9
		target_if_measured quantile snapshot "$case" 'last/first claim p99' outbox 0.5 '<=' 2
	done
}
