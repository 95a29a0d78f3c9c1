# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench/run
#
# The variants of bench/run, and how one of them is driven: to be sourced by it.
#
#   start_server SET           a cluster, a database for each of "${variants[@]}"
#   check_server SET           no message is missing, the server's log has no errors
#   stop_server SET
#   make_database VARIANT NAME             one more
#   drive SET CASE VARIANT ROUND METRICS NAME=VALUE...    runs the program drive, and records
#                              those of its figures that METRICS, separated by commas, names
#   taking_turns ROUND         the variants, in the order of that round
#   has_result SET CASE VARIANT METRIC
#
# The variant batched is baseline's schema, driven through its batch functions.

declare -A enqueued=() completed=()	# of each database

start_server() {
	local variant megabytes
	# No checkpoint while it runs: full pages in the WAL would depend on when it happens to
	# come. A quarter of the memory for buffers, as is usual. Otherwise as it comes.
	megabytes=$(awk '/^MemTotal:/ { print int($2 / 4096) }' /proc/meminfo)
	cluster_start "cluster_$1" \
		"shared_preload_libraries = 'outbox'" "max_worker_processes = 32" \
		"fsync = on" "synchronous_commit = on" "shared_buffers = ${megabytes}MB" \
		"max_wal_size = 48GB" "checkpoint_timeout = 1d" "autovacuum = on"
	enqueued=()
	completed=()
	for variant in "${variants[@]}"; do
		make_database "$variant" "$variant"
		[ "$1" = backlog ] || grow_history "$1" "$variant"
	done
	export PGDATABASE=${variants[0]}
}

stop_server() {
	cluster_stop "cluster_$1" immediate
	rm -rf "${OUTBOX_TMP:?}/cluster_$1"
}

schema_of() {
	if [ "$1" = batched ]; then echo baseline; else echo "$1"; fi
}

ordering() {
	if [ "$numbered" = yes ]; then echo numbered; else echo none; fi
}

make_database() {
	local variant=$1
	createdb "$2"
	export PGDATABASE=$2
	enqueued[$2]=0
	completed[$2]=0
	case $variant in
		outbox)
			query "CREATE EXTENSION outbox"
			query "SELECT outbox.create_queue('bench', ordering => '$(ordering)'); SELECT outbox.maintain()" >/dev/null
			await "a worker runs" is_true "SELECT count(*) FILTER (WHERE state = 'running') = 1 FROM outbox.workers
				WHERE kind = 'worker' AND database = current_database()"
			;;
		*)
			query "ALTER DATABASE $2 SET enable_seqscan = off"
			psql -XAtq -v ON_ERROR_STOP=1 -f "$OUTBOX_COPY/bench/$(schema_of "$variant").sql"
			;;
	esac
	case $variant in
		baseline | batched) query "INSERT INTO baseline.queues VALUES ('bench', $([ "$numbered" = yes ] && echo true || echo false))" ;;
	esac
}

# So that no variant starts on empty tables, nor without statistics of full ones.
grow_history() {
	drive "$1" history "$2" 0 '' cycle=e batch=100 count=10000 drain=0
	query ANALYZE
	drive "$1" history "$2" 0 '' cycle=cd batch=100 count=10000
	query "VACUUM ANALYZE"
}

# The database is the variant's, unless PGDATABASE is another one of it: $database.
drive() {
	local set=$1 case=$2 variant=$3 round=$4 metrics=$5 name value answer
	local database=${database:-$3} by_message=0
	[ "$variant" != baseline ] || by_message=1
	shift 5
	seed=$((seed + 1))
	answer=$(as_user "$OUTBOX_TMP/drive" conninfo="dbname=$database ${conninfo:-}" schema="$(schema_of "$variant")" by_message=$by_message \
		seed="$seed" keys="$keys" \
		postmaster="$(head -n 1 "$OUTBOX_TMP/cluster_$set/postmaster.pid")" "$@") ||
		cluster_die "$set, $case, $variant: the client gave up"
	declare -gA figures=()
	while IFS=$'\t' read -r name value; do
		figures[$name]=$value
	done <<<"$answer"
	enqueued[$database]=$((enqueued[$database] + figures[enqueued]))
	completed[$database]=$((completed[$database] + figures[completed]))
	IFS=, read -ra metrics <<<"$metrics"
	for name in "${metrics[@]}"; do
		record "$set" "$case" "${as_variant:-$variant}" "$round" "$name" "${figures[$name]}"
	done
}

# in_turn ROUND WORD...: each comes first, and behind each of the others, in some round
in_turn() {
	local round=$1 i
	shift
	for ((i = 0; i < $#; i++)); do
		if ((round % 2)); then
			echo "${@:1 + (i + round - 1) % $#:1}"
		else
			echo "${@:1 + (1000 * $# - i - round) % $#:1}"
		fi
	done
}

taking_turns() {
	in_turn "$1" "${variants[@]}"
}

has_result() {
	local IFS=$'\t'
	grep -qF "record$IFS$1$IFS$2$IFS$3$IFS" "$OUTBOX_TMP/figures" &&
		grep -F "record$IFS$1$IFS$2$IFS$3$IFS" "$OUTBOX_TMP/figures" | grep -qF "$IFS$4$IFS"
}

# target_if_measured KIND SET CASE METRIC VARIANT OTHER SIGN VALUE: see target
target_if_measured() {
	if has_result "$2" "$3" "$5" "$4" && { [ "$1" = quantile ] || has_result "$2" "$3" "$6" "$4"; }; then
		target "$@"
	fi
}

# ---------------------------------------------------------------- checks

# Messages that were enqueued, those pending, those delivered.
counts_of() {
	case $1 in
		baseline | batched) query "SELECT p + d, p, d FROM (SELECT count(*) p FROM baseline.pending) p,
			(SELECT count(DISTINCT outbox_id) d FROM baseline.attempts WHERE state = 'DISPATCHED') d" ;;
		*) query "SELECT (SELECT count(*) FROM $1.messages), (SELECT count(*) FROM $1.pending),
			(SELECT count(DISTINCT outbox_id) FROM $1.attempts WHERE state = 'DISPATCHED')" ;;
	esac
}

check_database() {
	local variant=$1 database=$2 is expected
	is=$(PGDATABASE=$database counts_of "$variant")
	expected="${enqueued[$database]}|$((enqueued[$database] - completed[$database]))|${completed[$database]}"
	[ "$is" = "$expected" ] || fault "$database has $is messages, pending, delivered; expected: $expected"
}

check_server() {
	local database
	for database in "${!enqueued[@]}"; do
		check_database "${database%%_*}" "$database"
	done
	# Autovacuum gives way to the VACUUM of a set.
	! grep -E '(WARNING|ERROR|FATAL|PANIC|LOG):  ' "$OUTBOX_TMP/cluster_$1.log" |
		grep -v 'ERROR:  canceling autovacuum task$' | grep -E '(WARNING|ERROR|FATAL|PANIC):|LOG:  outbox' >&2 ||
		fault "the server's log has errors"
}
