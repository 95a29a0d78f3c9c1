# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# One message at a time: what it gains to complete and claim in one call, and to commit claims
# asynchronously, against the three calls of lifecycle. Durable commits. And the same where
# messages lie there already.

batch1_ways=(outbox async fused)

measure_batch1() {
	local round n way time count=2000
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	time=$(seconds_or 1 0.3)
	[ "$quick" = no ] || count=300
	condition batch1 "300 B; lifecycle $time s; $count messages lie there"
	condition "batch1: async, fused" "outbox.async_claim = on; complete_and_claim"
	for ((round = 1; round <= rounds; round++)); do
		say "batch1, round $round of $rounds"
		for n in "${workers[@]}"; do
			for way in $(in_turn "$round" "${batch1_ways[@]}"); do
				batch1_once "$way" lifecycle "$n" "$round" seconds="$time"
				drive batch1 load outbox "$round" '' cycle=e batch=100 count="$count" drain=0
				batch1_once "$way" 'lying there' "$n" "$round" count="$count"
			done
		done
	done
	compare batch1 outbox messages/s more
	compare batch1 outbox 'server us' less
	compare batch1 outbox 'WAL B' less
}

# batch1_once WAY CASE WORKERS ROUND NAME=VALUE
batch1_once() {
	local way=$1 case=$2 n=$3 round=$4 cycle=cd options=
	[ "$way" != fused ] || cycle=f
	[ "$way" != async ] || options="options='-c outbox.async_claim=on'"
	[ "$case" != lifecycle ] || cycle=e$cycle
	as_variant=$way conninfo=$options drive batch1 "$case, $n worker$([ "$n" = 1 ] || echo s)" outbox "$round" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=$cycle batch=1 sessions="$n" "$5"
}
