# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# What protected fields cost: messages are enqueued into a queue that encrypts one of their fields (protected), and claimed
# as ciphertext, or in plain text (revealed), beside the same queue without. Batches of 100 are about 64 subjects each, whose
# keys were made before. Commits that do not wait for the disk.

privacy_ways=(outbox protected revealed)

measure_privacy() {
	local round way batch count
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	PGDATABASE=outbox query "ALTER SYSTEM SET outbox.master_key_command = 'echo $(printf '7%.0s' {1..64})'"
	PGDATABASE=outbox query "SELECT pg_reload_conf()" >/dev/null
	await "there is a master key" is_true "SELECT outbox.master_key_problem() IS NULL"
	condition privacy "300 B, of which 265 B are one protected field; 64 subjects; synchronous_commit = off"
	for ((round = 0; round <= rounds; round++)); do
		say "privacy, round $round of $rounds"
		for batch in 1 100; do
			count=$([ "$quick" = yes ] && echo 1000 || echo $((batch == 1 ? 4000 : 40000)))
			for way in $(in_turn "$((round + 1))" "${privacy_ways[@]}"); do
				privacy_once "$way" $batch "$round" "$count"
			done
		done
	done
	privacy_set '{}' false
	compare privacy outbox 'server us' less
	compare privacy outbox 'WAL B' less
}

# privacy_set RULE REVEALS
privacy_set() {
	PGDATABASE=outbox query "SELECT outbox.alter_queue('bench', protect => '$1', reveal_on_claim => $2)" >/dev/null
}

# privacy_once WAY BATCH ROUND COUNT: round 0 makes the keys, and is not recorded
privacy_once() {
	local way=$1 batch=$2 round=$3 count=$4 metrics='messages/s,server us,WAL B'
	case $way in
		outbox) privacy_set '{}' false ;;
		*) privacy_set '{"subject": "order", "fields": ["note"]}' "$([ "$way" = revealed ] && echo true || echo false)" ;;
	esac
	[ "$round" -gt 0 ] || metrics=
	as_variant=$way conninfo="options='-c synchronous_commit=off'" drive privacy "enqueue, batch $batch" outbox "$round" \
		"$metrics" cycle=e batch="$batch" count="$count" drain=0
	as_variant=$way conninfo="options='-c synchronous_commit=off'" drive privacy "claim and complete, batch $batch" outbox "$round" \
		"$metrics" cycle=cd batch="$batch" count="$count"
}
