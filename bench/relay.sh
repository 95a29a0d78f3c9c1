# shellcheck shell=bash
#
# What the benchmarks of the relay share, on top of measure.sh: to be sourced after it.
#
#   relay_server                  builds all, and starts a server with the database bench
#   start_relay QUEUE <<<TOML     the relay serves QUEUE; TOML comes after its [[source]]. $relay is its process
#   stop_relay                    a fault unless it ends well
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
