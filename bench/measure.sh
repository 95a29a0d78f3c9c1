# shellcheck shell=bash
#
# What the scripts of bench/ share, on top of test/cluster.sh: to be sourced after it.
#
#   bench_compile PROGRAM...              builds PROGRAM.cpp of this folder into $OUTBOX_TMP
#   condition NAME VALUE                  something the numbers depend on
#   bench_conditions                      notes those that every benchmark has, once the
#                                         server runs with the extension in $PGDATABASE
#   record SET CASE VARIANT ROUND METRIC VALUE    one figure of one round: its median counts
#   sample SET CASE VARIANT ROUND METRIC          one of many, a line each on standard input:
#                                         their quantiles count
#   compare SET VARIANT METRIC more|less  shows that figure of other variants in terms of VARIANT
#   target ratio SET CASE METRIC VARIANT OTHER >= VALUE       VARIANT in terms of OTHER
#   target quantile SET CASE METRIC VARIANT QUANTILE <= VALUE
#   bench_report conditions|results       prints them
#   bench_save FILE                       writes all of it as JSON
#   query SQL, await WHAT COMMAND...      as in demo/run
#   fault TEXT                            the server did something wrong: bench_status is 1
#
# A missed target is printed, and is no fault: machines differ.

bench=$OUTBOX_ROOT/bench
bench_status=0

bench_compile() {
	local program
	for program in "$@"; do
		as_user g++ -std=c++20 -O2 -Wall -Wextra "-I$("$PG_CONFIG" --includedir)" \
			-o "$OUTBOX_TMP/$program" "$OUTBOX_COPY/bench/$program.cpp" "-L$("$PG_CONFIG" --libdir)" -lpq
	done
}

bench_line() {
	local file=$1 IFS=$'\t'
	shift
	printf '%s\n' "$*" >>"$OUTBOX_TMP/$file"
}

condition() {
	bench_line conditions "$@"
}

record() {
	bench_line figures record "$@"
}

sample() {
	local value
	while read -r value; do
		bench_line figures sample "$@" "$value"
	done
}

compare() {
	bench_line comparisons "$@"
}

target() {
	bench_line targets "$@"
}

fault() {
	cluster_say "FAULT: $*"
	# shellcheck disable=SC2034 # for those who source this
	bench_status=1
}

query() {
	psql -XAtq -v ON_ERROR_STOP=1 -c "$1"
}

is_true() {
	[ "$(query "$1")" = t ]
}

await() {
	local what=$1 limit=$((SECONDS + 60))
	shift
	until "$@"; do
		[ $SECONDS -lt $limit ] || cluster_die "waited in vain until $what"
		sleep 0.02
	done
}

bench_source() {
	git -C "$OUTBOX_ROOT" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown
}

bench_conditions() {
	local name value

	condition date "$(date -u +%FT%TZ)"
	condition PostgreSQL "$(query 'SHOW server_version')"
	condition outbox "$(query "SELECT extversion FROM pg_extension WHERE extname = 'outbox'"), source $(bench_source)"
	condition compiler "$(g++ --version | head -n 1)"
	condition kernel "$(uname -sr)"
	condition processor "$(sed -nE '/^model name/ { s/.*: //p; q }' /proc/cpuinfo)"
	condition cores "$(nproc)"
	condition memory "$(sed -nE 's/^MemTotal: *([0-9]+) kB/\1/p' /proc/meminfo) kB"
	condition "file system" "$(stat --file-system --format=%T "$OUTBOX_TMP")"
	condition "load average before" "$(cut -d ' ' -f 1-3 /proc/loadavg)"
	while IFS='|' read -r name value; do
		condition "$name" "$value"
	done < <(query "
		SELECT name, current_setting(name) FROM pg_settings
		WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'shared_buffers', 'wal_sync_method')
			OR name LIKE 'outbox.%'
			OR source = 'configuration file' AND name !~ '^(port|listen_|unix_|log_|lc_|DateStyle|TimeZone|default_text|dynamic_)'
		ORDER BY name LIKE 'outbox.%', name")
}

bench_report() {
	perl "$bench/report.pl" "$1" "$OUTBOX_TMP"
}

bench_save() {
	mkdir -p "$(dirname "$1")"
	perl "$bench/report.pl" json "$OUTBOX_TMP" >"$1"
}
