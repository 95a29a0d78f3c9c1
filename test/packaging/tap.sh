# shellcheck shell=bash
#
# Tests in bash, which print TAP: to be sourced.
#
#   is GOT EXPECTED NAME
#   succeeds NAME COMMAND...     shows the end of what the command printed, if it fails
#   await NAME COMMAND...        until the command succeeds
#   count                        prints N passed, N failed; its status is 0 if none failed and some passed

passed=0
failed=0

ok() {
	passed=$((passed + 1))
	echo "ok $((passed + failed)) - $1"
}

# not_ok NAME LINE...
not_ok() {
	failed=$((failed + 1))
	echo "not ok $((passed + failed)) - $1"
	shift
	printf '%s\n' "$@" | sed 's/^/# /'
}

is() {
	if [ "$1" = "$2" ]; then
		ok "$3"
	else
		not_ok "$3" "$1" "instead of $2"
	fi
}

succeeds() {
	local name=$1 log
	shift
	log=$(mktemp)
	if "$@" >"$log" 2>&1 </dev/null; then
		ok "$name"
	else
		not_ok "$name" "$(tail -n 25 "$log" | cut -c 1-300)"
	fi
	rm -f "$log"
}

await() {
	local name=$1 limit=$((SECONDS + 120))
	shift
	until "$@"; do
		if [ $SECONDS -ge $limit ]; then
			not_ok "$name" 'waited in vain'
			return
		fi
		sleep 0.1
	done
	ok "$name"
}

count() {
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ] && [ $passed -gt 0 ]
}
