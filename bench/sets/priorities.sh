# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What claims and completions cost with 16 priorities, strict ones and ones that rise (priority_aging), beside the plain
# queue; and with 200,000 messages of a lower priority, which they must not read. Commits that do not wait for the disk.

# With a backlog in a database of their own.
priorities_ways=(outbox strict aged 'strict, backlog' 'aged, backlog')

measure_priorities() {
	local round way batch count=20000 backlog=200000
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	[ "$quick" = no ] || count=1000 backlog=20000
	condition priorities "messages of 300 B of 16 priorities lie there, batches of 1 and 100, 1 worker, synchronous_commit = off; aged: 1 hour, waits of up to 20 hours; backlog: $backlog of the lowest priority"
	make_database outbox outbox_backlog
	database=outbox_backlog drive priorities load outbox 0 '' cycle=e batch=1000 count=$backlog drain=0
	PGDATABASE=outbox_backlog query "VACUUM ANALYZE"
	for ((round = 1; round <= rounds; round++)); do
		say "priorities, round $round of $rounds"
		for batch in 1 100; do
			mapfile -t ways < <(in_turn "$round" "${!priorities_ways[@]}")
			for way in "${ways[@]}"; do
				priorities_once "${priorities_ways[way]}" $batch "$round" $((batch == 1 ? count / 5 : count))
			done
		done
	done
	# What is claimed in another order than it was enqueued lies at random places: that is what strict priorities cost.
	for way in outbox strict; do
		compare priorities $way messages/s more
		compare priorities $way 'server us' less
		compare priorities $way 'WAL B' less
	done
}

# priorities_once WAY BATCH ROUND COUNT
priorities_once() {
	local way=$1 batch=$2 round=$3 aging=0 database=outbox
	[[ $way != *backlog ]] || database=outbox_backlog
	[[ $way != aged* ]] || aging='1 hour'
	PGDATABASE=$database query "SELECT outbox.alter_queue('bench', priority_aging => '$aging')" >/dev/null
	drive priorities load outbox "$round" '' cycle=e batch=100 count="$4" drain=0
	# Not those of the backlog, which was there before.
	[ "$way" = outbox ] || PGDATABASE=$database query "UPDATE outbox.pending SET priority = floor(random() * 15) + 1, next_attempt_at = now() - random() * interval '20 h'
		WHERE outbox_id IN (SELECT outbox_id FROM outbox.pending ORDER BY outbox_id DESC LIMIT $4)"
	PGDATABASE=$database query "VACUUM ANALYZE outbox.pending"
	as_variant=$way conninfo="options='-c synchronous_commit=off'" drive priorities "batch $batch" outbox "$round" \
		'messages/s,server us,WAL B,background us,client us,others CPU %' cycle=cd batch="$batch" count="$4"
}
