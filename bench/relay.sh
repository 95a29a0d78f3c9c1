# shellcheck shell=bash
#
# What the benchmarks of the relay share, on top of measure.sh: to be sourced after it.
#
#   relay_server                  builds all, and starts a server with the database bench
#   start_relay QUEUE <<<TOML     the relay serves QUEUE; TOML comes after its [[source]]. $relay is its process
#   stop_relay                    a fault unless it ends well
#   fill QUEUE                    a new queue with $count messages of 300 B
#   await_drained QUEUE           waits until nothing is pending in it
#   latencies QUEUE SECONDS <<<TOML   500 single messages a second, after one that makes the relay connect: milliseconds
#                                 from the enqueue to the acceptance of each, into $OUTBOX_TMP/latencies
#
# $relay_listen: its address for metrics; none if empty. $relay_level: of its log, which goes to $OUTBOX_TMP/relay.log.

relay_listen=
relay_level=error

relay_server() {
	cluster_packages
	cluster_init
	cluster_build
	cluster_copy
	make -s -C "$OUTBOX_COPY/relay"
	cluster_start relay "shared_preload_libraries = 'outbox'" "shared_buffers = 1GB" "max_wal_size = 16GB" \
		"checkpoint_timeout = 1h" "synchronous_commit = off" "$@"
	createdb bench
	export PGDATABASE=bench
	query "CREATE EXTENSION outbox"
	query "SELECT outbox.maintain()" >/dev/null
}

start_relay() {
	as_user tee "$OUTBOX_TMP/tmp/relay.toml" >/dev/null <<-END
		[relay]
		listen = "$relay_listen"
		[log]
		level = "$relay_level"
		[[source]]
		name = "bench"
		dsn = "dbname=bench host=$PGHOST port=$PGPORT user=$PGUSER"
		queues = ["$1"]
		$(cat)
	END
	: >"$OUTBOX_TMP/relay.log"
	# shellcheck disable=SC2154 # it is that of test/cluster.sh
	(exec "${cluster_as_user[@]}" "$OUTBOX_COPY/relay/outbox-relay" --config "$OUTBOX_TMP/tmp/relay.toml") 2>>"$OUTBOX_TMP/relay.log" &
	relay=$!
}

stop_relay() {
	kill "$relay"
	wait "$relay" || fault "the relay did not end as it should: $(tail -n 5 "$OUTBOX_TMP/relay.log")"
}

fill() {
	query "SELECT outbox.create_queue('$1')" >/dev/null
	query "SELECT count(*) FROM generate_series(1, $count) g,
		outbox.enqueue('bench', jsonb_build_object('order', g, 'note', '$(printf 'x%.0s' {1..270})'), '$1')" >/dev/null
	query CHECKPOINT
}

# Looks seldom: each look takes some 20 ms of CPU from what is measured, and the ledger has the times.
await_drained() {
	local limit=$((SECONDS + 60))
	until is_true "SELECT NOT EXISTS (SELECT FROM outbox.pending WHERE queue = '$1')"; do
		[ $SECONDS -lt $limit ] || cluster_die "waited in vain until $1 is drained"
		sleep 0.5
	done
}

latencies() {
	query "SELECT outbox.create_queue('$1')" >/dev/null
	start_relay "$1"
	query "SELECT outbox.enqueue('first', '1', '$1')" >/dev/null
	await_drained "$1"
	as_user tee "$OUTBOX_TMP/tmp/one.sql" >/dev/null <<<"SELECT outbox.enqueue('bench', '1', '$1');"
	as_user pgbench -n -c 4 -R 500 -T "$2" -f "$OUTBOX_TMP/tmp/one.sql" bench >/dev/null
	await_drained "$1"
	stop_relay
	query "SELECT extract(epoch FROM a.claimed_at - m.created_at) * 1000 + a.latency_ms
		FROM outbox.attempts a JOIN outbox.messages m USING (outbox_id)
		WHERE m.queue = '$1' AND m.event_type <> 'first'" >"$OUTBOX_TMP/latencies"
}
