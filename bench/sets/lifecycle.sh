# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# Enqueue a batch, claim a batch, complete it: each a transaction that is on disk when it
# returns. Each worker does all three in turn.

lifecycle_case() {
	echo "$1 B, batch $2, $3 worker$([ "$3" = 1 ] || echo s)"
}

measure_lifecycle() {
	local round payload batch n variant time
	time=$(seconds_or 1 0.3)
	condition lifecycle "$time s, and 3 cycles of each worker at least"
	for ((round = 1; round <= rounds; round++)); do
		say "lifecycle, round $round of $rounds"
		for payload in "${payloads[@]}"; do
			for batch in "${batches[@]}"; do
				for n in "${workers[@]}"; do
					for variant in $(taking_turns "$round"); do
						drive lifecycle "$(lifecycle_case "$payload" "$batch" "$n")" "$variant" "$round" \
							'messages/s,server us,WAL B,background us,client us,others CPU %' \
							cycle=ecd batch="$batch" payload="$payload" sessions="$n" seconds="$time"
					done
				done
			done
		done
	done
	targets_lifecycle
}

targets_lifecycle() {
	local case batch payload cpu wal rate
	compare lifecycle baseline messages/s more
	compare lifecycle baseline 'server us' less
	compare lifecycle baseline 'WAL B' less
	if [ "$keys" = 0 ]; then
		target_if_measured quantile lifecycle "$(lifecycle_case 300 1000 2)" messages/s outbox 0.5 '>=' 40000
		return
	fi
	while read -r payload batch cpu wal rate; do
		case=$(lifecycle_case "$payload" "$batch" 1)
		target_if_measured ratio lifecycle "$case" 'server us' baseline outbox '>=' "$cpu"
		[ "$wal" = - ] || target_if_measured ratio lifecycle "$case" 'WAL B' baseline outbox '>=' "$wal"
		[ "$rate" = - ] || target_if_measured ratio lifecycle "$case" messages/s outbox baseline '>=' "$rate"
	done <<<"300 1 2.6 - -
300 10 3.5 - -
300 100 4.5 2.0 4
300 1000 5.3 - 5
2000 100 3.5 - -"
}
