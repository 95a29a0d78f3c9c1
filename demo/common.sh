# shellcheck shell=bash
#
# What the demos and examples/order have in common: to be sourced by bash scripts that run with `set -euo pipefail`.
#
# It has test/cluster.sh, and with it the clusters. What a demo starts in the background is
# known by name, its output is in NAME.log, and it ends with the script, whatever way that goes.

# shellcheck disable=SC2317 # functions called through await and trap

# shellcheck source-path=SCRIPTDIR source=../test/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/../test/cluster.sh"

declare -A pid=()	# of what runs beside the script
declare -A may_end=()	# names of what may have come to a good end at any time

say() {
	printf '\n== %s\n' "$*"
}

# query DATABASE SQL
query() {
	psql -XAtq -v ON_ERROR_STOP=1 -d "$1" -c "$2"
}

# is_true DATABASE SQL
is_true() {
	[ "$(query "$1" "$2")" = t ]
}

# start NAME COMMAND...: as the unprivileged user, with the standard input given.
# $! is the command itself, no shell around it.
start() {
	local name=$1
	shift
	(exec "${cluster_as_user[@]}" "$@" >>"$OUTBOX_TMP/$name.log" 2>&1) <&0 &
	pid[$name]=$!
}

# finish NAME: waits for its end, unless that was seen; it must be a good one
finish() {
	local status=0
	[ -n "${pid[$1]:-}" ] || return 0
	wait "${pid[$1]}" || status=$?
	unset "pid[$1]"
	if [ $status -ne 0 ]; then
		cat "$OUTBOX_TMP/$1.log" >&2
		cluster_die "$1 ended with status $status"
	fi
}

# kill_hard NAME: with SIGKILL
kill_hard() {
	kill -KILL "${pid[$1]}"
	wait "${pid[$1]}" 2>/dev/null || :
	unset "pid[$1]"
}

all_run() {
	local name
	for name in "${!pid[@]}"; do
		kill -0 "${pid[$name]}" 2>/dev/null || {
			finish "$name"
			[ -n "${may_end[$name]:-}" ] || cluster_die "$name ended too early"
		}
	done
}

# await WHAT COMMAND...: until the command succeeds, while all that was started runs
await() {
	local what=$1 limit=$((SECONDS + 120))
	shift
	until "$@"; do
		all_run
		[ $SECONDS -lt $limit ] || cluster_die "waited in vain until $what"
		sleep 0.05
	done
}

# nothing_pending DATABASE
nothing_pending() {
	is_true "$1" "SELECT NOT EXISTS (SELECT FROM outbox.pending)"
}

# prove DATABASE FILE: runs a query whose rows are a claim and the number of what speaks against it
prove() {
	local claim against failed=0
	psql -XAtq -F $'\t' -v ON_ERROR_STOP=1 -d "$1" <"$2" >"$OUTBOX_TMP/proof" || return
	while IFS=$'\t' read -r claim against; do
		if [ "$against" = 0 ]; then
			echo "true: $claim"
		else
			echo "FALSE: $claim ($against against)"
			failed=1
		fi
	done <"$OUTBOX_TMP/proof"
	return $failed
}

# What runs ends with the script; also what is stopped.
end() {
	[ ${#pid[@]} -eq 0 ] || kill -KILL "${pid[@]}" 2>/dev/null || :
	wait 2>/dev/null
	cluster_cleanup
}
