# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables of and for bench/run
#
# Producers alone: one message a transaction that is on disk when it returns.

measure_enqueue() {
	local round n with variant time keys
	local -A rate=()
	time=$(seconds_or 2 0.3)
	condition enqueue "$time s, 300 B, batch 1"
	for ((round = 1; round <= rounds; round++)); do
		say "enqueue, round $round of $rounds"
		for with in 'with keys' 'without keys'; do
			keys=$([ "$with" = 'with keys' ] && echo 1 || echo 0)
			for n in 1 8 32; do
				for variant in $(taking_turns "$round"); do
					drive enqueue "$with, $n client$([ $n = 1 ] || echo s)" "$variant" "$round" \
						'messages/s,server us,WAL B,background us,client us,others CPU %' \
						cycle=e sessions=$n seconds="$time" warm_up=20 cycles=20 drain=0
					rate[$variant $n]=${figures[messages/s]}
				done
			done
			for variant in "${variants[@]}"; do
				record 'enqueue, 32 clients against 8' "$with" "$variant" "$round" 'messages/s ratio' \
					"$(quotient "${rate[$variant 32]}" "${rate[$variant 8]}")"
			done
		done
	done
	targets_enqueue
}

targets_enqueue() {
	local with clients
	compare enqueue baseline messages/s more
	compare enqueue baseline 'server us' less
	compare enqueue baseline 'WAL B' less
	for with in 'with keys' 'without keys'; do
		for clients in '1 client' '8 clients' '32 clients'; do
			target_if_measured ratio enqueue "$with, $clients" messages/s outbox baseline '>=' 2
		done
		target_if_measured quantile 'enqueue, 32 clients against 8' "$with" 'messages/s ratio' outbox 0.5 '>=' 1
	done
}
