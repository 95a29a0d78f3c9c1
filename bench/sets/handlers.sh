# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# A queue whose handler writes nothing, beside a client that claims and completes a hundred at a time: what lies there is
# taken. Messages a second by the ledger, from the first claim to the last outcome. The client commits as it comes, that
# is, waits for the disk twice for a hundred messages (outbox), or does not (async); a process that handles waits once
# for a batch of a hundred, for their leases.

measure_handlers() {
	local round n way count=40000
	[[ " ${variants[*]} " == *" outbox "* ]] || return 0
	[ "$quick" = no ] || count=2000
	PGDATABASE=outbox query "CREATE FUNCTION public.nothing(m outbox.claimed) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'"
	condition handlers "$count messages of 300 B lie there, batch 100"
	for ((round = 1; round <= rounds; round++)); do
		say "handlers, round $round of $rounds"
		for n in 1 2; do
			for way in $(in_turn "$round" outbox async handler); do
				handlers_once "$way" $n "$round" $count
			done
		done
	done
	compare handlers outbox messages/s more
	target_if_measured ratio handlers '1 client or process' messages/s handler outbox '>=' 0.8
	target_if_measured ratio handlers '2 clients or processes' messages/s handler outbox '>=' 0.8
}

# handlers_once WAY NUMBER ROUND COUNT
handlers_once() {
	local way=$1 n=$2 round=$3 count=$4 case='1 client or process'
	[ "$n" = 1 ] || case="$n clients or processes"
	export PGDATABASE=outbox
	query "ALTER SYSTEM SET outbox.handler_workers = $n"
	query "SELECT pg_reload_conf()" >/dev/null
	query "SELECT outbox.pause('bench')" >/dev/null
	drive handlers load outbox "$round" '' cycle=e batch=1000 count="$count" drain=0
	query "VACUUM ANALYZE"
	if [ "$way" = handler ]; then
		query "SELECT outbox.alter_queue('bench', handler => 'public.nothing')"
		query "SELECT outbox.resume('bench')"
		await_handled
		query "SELECT outbox.alter_queue('bench', handler => '')"
		completed[outbox]=$((completed[outbox] + count))
	else
		query "SELECT outbox.resume('bench')"
		conninfo="options='-c synchronous_commit=$([ "$way" = async ] && echo off || echo on)'" drive handlers taken outbox "$round" '' cycle=cd batch=100 sessions="$n" count="$count"
	fi >/dev/null
	record handlers "$case" "$way" "$round" messages/s "$(handled_rate "$count")"
}

await_handled() {
	local limit=$((SECONDS + 600))
	until is_true "SELECT NOT EXISTS (SELECT FROM outbox.pending)"; do
		[ $SECONDS -lt $limit ] || cluster_die "messages were not handled"
		sleep 0.2
	done
}

# Of the COUNT messages that ended last.
handled_rate() {
	query "SELECT count(*) / extract(epoch FROM max(completed_at) - min(claimed_at))
		FROM (SELECT completed_at, claimed_at FROM outbox.attempts ORDER BY completed_at DESC LIMIT $1) a"
}
