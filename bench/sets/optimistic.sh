# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# From the enqueue of a message until its delivery is recorded, one message at a time: by a
# worker that is woken, or by the producer itself, who takes the lease with the enqueue.

measure_optimistic() {
	local round variant n=200
	[ "$quick" = no ] || n=50
	condition optimistic "$n messages a round, 300 B, durable commits"
	for ((round = 1; round <= rounds; round++)); do
		say "optimistic, round $round of $rounds"
		for variant in $(taking_turns "$round"); do
			deliver worker 'a worker that listens' "$variant" "$round" $n
			[ "$variant" != outbox ] || deliver alone 'enqueue_and_claim' "$variant" "$round" $n
		done
	done
}

# deliver alone|worker CASE VARIANT ROUND N
deliver() {
	seed=$((seed + 1))
	as_user "$OUTBOX_TMP/optimistic" "$1" "dbname=$3" "$3" bench "$5" $seed >"$OUTBOX_TMP/latency" ||
		cluster_die "optimistic, $2, $3: the client gave up"
	enqueued[$3]=$((enqueued[$3] + $5))
	completed[$3]=$((completed[$3] + $5))
	sample optimistic "$2" "$3" "$4" us <"$OUTBOX_TMP/latency"
}
