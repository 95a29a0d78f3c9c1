# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What the limits of a queue cost where they are so high that they stop nothing, and the turns of its keys: claims
# and completions of what lies there, beside a queue without any. Commits that do not wait for the disk.

limits_ways=(outbox max_in_flight rate_limit fair_by max_in_flight_per_key)

measure_limits() {
	local round n way batch count=20000
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	[ "$quick" = no ] || count=1000
	# A claim that counts leases makes others wait for the next one, which the client takes for the end.
	PGDATABASE=outbox query "ALTER SYSTEM SET outbox.poll_interval = '1h'"
	PGDATABASE=outbox query "SELECT pg_reload_conf()" >/dev/null
	condition limits "$count messages of 300 B lie there, batches of 1 and 100, synchronous_commit = off"
	for ((round = 1; round <= rounds; round++)); do
		say "limits, round $round of $rounds"
		for n in "${workers[@]}"; do
			for batch in 1 100; do
				for way in $(in_turn "$round" "${limits_ways[@]}"); do
					limits_once "$way" $batch "$n" "$round" $count
				done
			done
		done
	done
	limit_queue outbox
	compare limits outbox messages/s more
	compare limits outbox 'server us' less
	compare limits outbox 'WAL B' less
}

# limits_once WAY BATCH WORKERS ROUND COUNT
limits_once() {
	local way=$1 batch=$2 n=$3 round=$4
	limit_queue "$way"
	drive limits load outbox "$round" '' cycle=e batch=1000 count="$5" drain=0
	as_variant=$way conninfo="options='-c synchronous_commit=off'" drive limits "batch $batch, $n worker$([ "$n" = 1 ] || echo s)" outbox "$round" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=cd batch="$batch" sessions="$n" count="$5"
}

# limit_queue WAY
limit_queue() {
	local flight=NULL rate=NULL fair='' per_key=NULL
	[ "$1" != max_in_flight ] || flight=1000000
	[ "$1" != rate_limit ] || rate=1000000000
	[ "$1" != fair_by ] || fair=partition_key
	[ "$1" != max_in_flight_per_key ] || per_key=1000000
	PGDATABASE=outbox query "SELECT outbox.alter_queue('bench', max_in_flight => $flight, rate_limit => $rate, fair_by => '$fair', max_in_flight_per_key => $per_key)" >/dev/null
	PGDATABASE=outbox query "SELECT FROM outbox.claim('count', queues => '{bench}')"
}
