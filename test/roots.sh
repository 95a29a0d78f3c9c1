# shellcheck shell=bash
#
# Roots with a suite of Debian in them, made by debootstrap: to be sourced by bash scripts that run as root, on Debian, with
# `set -euo pipefail`. It has cluster.sh, too.
#
#   have_root NAME STAMP COMMAND...   sets `root` to the root NAME in the cache folder. `COMMAND... FOLDER` makes it, if it is
#                                     not there or was made with another stamp
#   bare_root SUITE                   the same for Debian with git, and nothing else
#   copy_bare SUITE FOLDER            a copy of that
#   add_user ROOT                     the unprivileged user, with the cache folder
#   copy_tree FOLDER                  copies the checkout, less what was built in it
#   in_root ROOT COMMAND...           as root, without the processes of this machine
#   run_there COMMAND...              in a copy of the checkout in `root`, as the unprivileged user, in namespaces of its own; the
#                                     copy is `copy`, until the script ends
#   state ROOT                        prints what is installed and what starts there
#
# What it guarantees:
# - A root is put in its place when it is complete. Who uses one keeps a lock on it, so that it is not made again meanwhile.
# - What runs there, and its mounts, are gone when it ends, however it ends.

# shellcheck source-path=SCRIPTDIR source=cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

user=tester
[ "$(id -u)" -eq 0 ] || cluster_die "${0##*/} needs root: debootstrap and mounts do"
cache=$(cluster_cache)

say() {
	cluster_say "$(date +%T) $*"
}

in_root() {
	unshare --mount --pid --fork --kill-child --mount-proc="$1/proc" chroot "$1" \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "${@:2}"
}

# The files that git knows, or would take; without git, what does not look like built.
copy_tree() {
	local files=(--exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' --exclude='*.d' --exclude=./results
		--exclude=./.build-flags --exclude=./.build-objects .)

	if git -C "$OUTBOX_ROOT" ls-files -z --cached --others --exclude-standard >"$1.files" 2>/dev/null; then
		files=(--ignore-failed-read --null "--files-from=$1.files")
	fi
	cluster_locked tar -C "$OUTBOX_ROOT" -cf - "${files[@]}" | tar -C "$1" --no-same-owner -xf -
	rm -f "$1.files"
}

state() {
	# shellcheck disable=SC2016 # for the other shell
	in_root "$1" sh -c '
		dpkg-query -W -f="package \${Package} \${Version}\n"
		find /etc/systemd /etc/rc?.d -type l -name "[!K]*" 2>/dev/null
		ls -d /usr/sbin/policy-rc.d /etc/postgresql/*/* /etc/postgresql-common/createcluster.d/* 2>/dev/null
		true' | sort
}

have_root() {
	local name=$1 stamp=$2
	shift 2

	root=$cache/roots/$name
	mkdir -p "$cache/roots"
	exec {lock}>"$root.lock"
	flock --shared "$lock"
	if ! is_made "$stamp"; then
		flock --unlock "$lock"
		flock "$lock"
	fi
	if ! is_made "$stamp"; then
		say "making a root of $name in $root (log: $root.log)"
		rm -rf --one-file-system "$root" "$root.new"
		("$@" "$root.new" && echo "$stamp" >"$root.new/etc/outbox-tests") >"$root.log" 2>&1 || {
			tail -n 30 "$root.log" >&2
			cluster_die "the root of $name could not be made: $root.log"
		}
		mv -T "$root.new" "$root"
		rm -f "$root.new".*
	fi
	flock --shared "$lock"
}

is_made() {
	[ "$(cat "$root/etc/outbox-tests" 2>/dev/null)" = "$1" ]
}

bare_root() {
	cluster_install debootstrap ca-certificates
	have_root "$1.bare" "$1 $(cluster_mirror)" make_bare "$1"
}

# make_bare SUITE FOLDER
make_bare() {
	local suite=$1 new=$2 script=()

	# An older debootstrap does not know a newer suite by name; all are made the same way.
	[ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
	say "debootstrap $suite"
	debootstrap --variant=minbase --include=ca-certificates,git --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
		"$suite" "$new" "$(cluster_mirror)" "${script[@]}" || return
	rm -f "$new/etc/apt/sources.list"
	cluster_sources deb "$suite" >"$new/etc/apt/sources.list.d/debian.sources"
	in_root "$new" apt-get clean
}

copy_bare() {
	(
		bare_root "$1"
		cp -a "$root" "$2"
		rm "$2/etc/outbox-tests"
		cp /etc/resolv.conf "$2/etc/resolv.conf"
	)
}

add_user() {
	in_root "$1" useradd --create-home --shell /bin/bash "$user" &&
		in_root "$1" mkdir -p /var/cache/outbox-tests &&
		in_root "$1" chown -R "$user" /var/cache/outbox-tests
}

tidy() {
	[ -z "${copy:-}" ] || rm -rf --one-file-system "$copy"
}

run_there() {
	local name variables status=0

	copy=$(mktemp -d "$root/home/$user/run.XXXXXX")
	trap tidy EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir "$copy/tree" "$copy/tmp"
	copy_tree "$copy/tree"
	chroot "$root" chown -R "$user:" "${copy#"$root"}"
	variables=("HOME=/home/$user" "USER=$user" PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C.UTF-8
		OUTBOX_CACHE=/var/cache/outbox-tests)
	for name in CI WERROR SANITIZE VERBOSE MINUTES SEED ROUNDS STEPS "${!FUZZ_@}" "${!OUTBOX_TEST_@}"; do
		[ -z "${!name+x}" ] || variables+=("$name=${!name}")
	done

	# bash stays as the first process: it also waits for what a server's processes leave behind.
	# shellcheck disable=SC2016 # for the other shell
	unshare --mount --pid --ipc --fork --kill-child --mount-proc="$root/proc" bash -euc '
		root=$1 user=$2 folder=$3
		shift 3
		mount --rbind /dev "$root/dev"
		# Of its own: processes of two runs may have the same ids, by which make names files there.
		mount --bind "$root$folder/tmp" "$root/tmp"
		mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
		status=0
		chroot "$root" setpriv --reuid="$user" --regid="$user" --init-groups env -i -C "$folder/tree" "$@" || status=$?
		exit $status
	' bash "$root" "$user" "${copy#"$root"}" "${variables[@]}" "$@" &
	# In the background, so that signals are heeded at once; --kill-child ends the rest.
	trap 'kill -KILL $! 2>/dev/null; tidy' EXIT
	wait $! || status=$?
	trap tidy EXIT
	return $status
}
