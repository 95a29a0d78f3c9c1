# shellcheck shell=bash
#
# Temporary PostgreSQL clusters with the extension in them: to be sourced by
# bash scripts that run with `set -euo pipefail`.
#
#   cluster_packages [PACKAGE...]      installs what is missing (Debian, Ubuntu; root or sudo): a
#                                      server, what building takes, and these; NN in a name is
#                                      the server's major version
#   cluster_init                       temporary folder, user, environment, trap
#   cluster_build                      builds in the checkout, installs into a private copy of
#                                      the server, whose programs then come first in PATH. With
#                                      OUTBOX_INSTALLED: the server as it is, with what is installed there
#   cluster_copy                       copies the checkout to where as_user can read and write
#   cluster_build_stop_points          builds that copy with STOP_POINTS=1 and installs it into
#                                      another copy of the server, for those who put
#                                      OUTBOX_STOP_POINTS_PATH in the place of PATH
#   cluster_start NAME [SETTING...]    a new cluster, each SETTING a line of postgresql.conf;
#                                      PGHOST, PGPORT, PGUSER, PGDATABASE then lead to it
#   cluster_use NAME                   makes them lead to another one
#   cluster_stop NAME [MODE]           fast, immediate or smart
#   cluster_cache                      prints the folder for what is kept between runs
#   cluster_promtool                   has promtool in PATH, from the package of that name or prometheus
#   cluster_prometheus                 has prometheus in PATH, which is not installed either
#   cluster_postgres_exporter          and prometheus-postgres-exporter
#   cluster_schemas                    fetches the schemas of Kubernetes' API, into OUTBOX_SCHEMAS, or says why not in OUTBOX_SCHEMAS_MISSING
#   cluster_old_queues                 fetches graphile-worker and pg-boss, into OUTBOX_OLD_QUEUES, or says why not in OUTBOX_OLD_QUEUES_MISSING
#   cluster_kafka                      fetches Apache Kafka, into OUTBOX_KAFKA, or says why not in OUTBOX_KAFKA_MISSING
#   cluster_mirror                     prints the mirror of Debian
#   cluster_sources TYPE SUITE         prints apt sources (deb, deb-src) of a suite of Debian
#   as_user COMMAND...                 runs something as the user who owns the clusters
#   watched LOG COMMAND...             the same, shown, kept in LOG, with a time limit, and
#                                      ended at once when the script is
#   cluster_cleanup                    ends everything and removes the folder: cluster_init
#                                      traps EXIT with it, unless the script has a trap of its
#                                      own, which then must call it
#
# What it guarantees:
# - Nothing outside the temporary folder, the cache folder and the checkout's build output
#   is written: the extension is installed into a copy of the server's files, so no
#   right is needed but to install packages, and runs do not disturb each other.
# - Installing packages only adds: what is installed keeps its version, no service is started,
#   restarted or enabled, no cluster is made. Where that is impossible, nothing is installed.
# - Servers never run as root: as user postgres if the script runs as root, else
#   as the user who runs it. They listen on a Unix socket in that folder only.
# - Whatever way the script ends, its servers are stopped and its folder removed.
#
# Reads: PG_CONFIG (the server; else the newest that is installed, else the newest that can
# be), TMPDIR, OUTBOX_KEEP (not empty: the temporary folder stays), OUTBOX_TIMEOUT (seconds for
# one `watched`), OUTBOX_CACHE (the cache folder), OUTBOX_MIRROR (of Debian; else apt's own),
# OUTBOX_INSTALLED (not empty: the packages of outbox are installed, and nothing of it is built).
#
# Sets: OUTBOX_ROOT (the checkout), OUTBOX_TMP, OUTBOX_USER, OUTBOX_COPY (where
# cluster_copy puts the checkout), OUTBOX_STOP_POINTS_PATH, PGXS_DIR, PG_MAJOR.

OUTBOX_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
OUTBOX_TMP=
cluster_child=
cluster_reader=
cluster_as_user=()
cluster_ports=0
cluster_majors=(18 17 16 15)	# newest first
cluster_build_packages=(g++ libssl-dev make perl util-linux postgresql-NN postgresql-server-dev-NN)
# What the tests take besides. test/roots looks at this, too.
# shellcheck disable=SC2034
cluster_test_packages=(ccache clang-format faketime libcli11-dev libgtest-dev libipc-run-perl libpq-dev nlohmann-json3-dev openssl pgbouncer
	postgresql-NN-pgtap python3-psycopg python3-psycopg2 spin)

cluster_say() {
	printf '%s\n' "$*" >&2
}

cluster_die() {
	cluster_say "error: $*"
	exit 1
}

cluster_as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		cluster_die "this needs root or sudo: $*"
	fi
}

# Prints the major version of the newest server that is installed as Debian does it.
cluster_installed_major() {
	local major
	for major in "${cluster_majors[@]}"; do
		if [ -x "/usr/lib/postgresql/$major/bin/postgres" ]; then
			echo "$major"
			return
		fi
	done
	return 1
}

# Prints that of the newest that can be installed.
cluster_available_major() {
	local major
	for major in "${cluster_majors[@]}"; do
		if apt-cache show "postgresql-$major" >/dev/null 2>&1 && apt-cache show "postgresql-server-dev-$major" >/dev/null 2>&1; then
			echo "$major"
			return
		fi
	done
	return 1
}

# With PG_CONFIG set, or without dpkg, what is there is used.
cluster_packages() {
	local major

	if [ -n "${PG_CONFIG:-}" ] || ! command -v dpkg-query >/dev/null; then
		return
	fi
	if [ -n "${OUTBOX_INSTALLED:-}" ]; then
		cluster_install g++ libpq-dev util-linux "$@"
		return
	fi
	major=$(cluster_installed_major || cluster_available_major) || {
		cluster_as_root apt-get -q update >&2
		major=$(cluster_available_major) ||
			cluster_die "apt has no server of version ${cluster_majors[*]}; set PG_CONFIG"
	}
	set -- "${cluster_build_packages[@]}" "$@"
	cluster_install "${@/NN/$major}"
}

# cluster_install PACKAGE...: installs what is missing of them, and only adds
cluster_install() {
	local package missing=()

	for package in "$@"; do
		# shellcheck disable=SC2016 # dpkg-query fills this in
		if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
			missing+=("$package")
		fi
	done
	if [ ${#missing[@]} -eq 0 ]; then
		return
	fi
	cluster_say "installing ${missing[*]}"
	cluster_as_root flock --close "${BASH_SOURCE[0]}" sh "${BASH_SOURCE[0]%/*}/add_packages" "${missing[@]}" \
		</dev/null >&2 || cluster_die "these packages are not installed: ${missing[*]}"
}

cluster_cache() {
	local folder=${OUTBOX_CACHE:-}

	if [ -z "$folder" ] && [ "$(id -u)" -eq 0 ]; then
		folder=/var/cache/outbox-tests
	fi
	folder=${folder:-${XDG_CACHE_HOME:-$HOME/.cache}/outbox-tests}
	mkdir -p "$folder"
	(cd "$folder" && pwd -P)
}

# Compilers by way of ccache, where it is installed: a run builds the same files several times, and so does the next
# one. Only for the caller: what as_user compiles would need a cache of its own.
cluster_ccache() {
	[ -x /usr/lib/ccache/g++ ] || return 0
	PATH=/usr/lib/ccache:$PATH
	CCACHE_DIR=$(cluster_cache)/ccache
	export CCACHE_DIR CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=1G
}

# Unpacked instead of installed: the package prometheus, which promtool is in up to Debian 12, enables
# a service.
cluster_promtool() {
	cluster_unpacked promtool promtool prometheus
}

cluster_prometheus() {
	cluster_unpacked prometheus prometheus
}

cluster_postgres_exporter() {
	cluster_unpacked prometheus-postgres-exporter prometheus-postgres-exporter
}

# cluster_unpacked PROGRAM PACKAGE...: has it in PATH, from the first of these packages that apt has
cluster_unpacked() {
	local program=$1 folder package
	shift

	if command -v "$program" >/dev/null || ! command -v apt-get >/dev/null; then
		return
	fi
	folder=$(cluster_cache)/$program
	if [ ! -x "$folder/usr/bin/$program" ]; then
		rm -rf "$folder" "$folder.new"
		mkdir "$folder.new"
		(cd "$folder.new" && for package in "$@"; do apt-get -q download "$package" 2>/dev/null && break; done &&
			dpkg -x ./*.deb . && rm ./*.deb && [ -x "usr/bin/$program" ]) >&2 || {
			cluster_say "$program cannot be had from apt"
			return
		}
		mv "$folder.new" "$folder"
	fi
	PATH=$PATH:$folder/usr/bin
}

# From PyPI, by Debian's pip: kubernetes-validate, which ships the schemas of Kubernetes' API; for test/ops. pip takes nothing but
# what has the hash that test/ops/requirements says.
cluster_schemas() {
	local source=$OUTBOX_ROOT/test/ops/requirements folder new

	folder=$(cluster_cache)/schemas-$(sha256sum <"$source" | cut -c 1-16)
	if [ ! -d "$folder" ]; then
		new=$(mktemp -d "$folder.XXXXXX")
		cluster_say "fetching the schemas of Kubernetes' API from PyPI"
		if ! timeout 300 /usr/bin/python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$source" -d "$new" </dev/null >"$new/log" 2>&1; then
			grep -m 2 ERROR "$new/log" >&2 || :
			export OUTBOX_SCHEMAS_MISSING='kubernetes-validate cannot be had from PyPI'
			rm -rf "$new"
			return
		fi
		chmod 755 "$new"
		mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
	fi
	OUTBOX_SCHEMAS=$(echo "$folder"/*.whl)
	export OUTBOX_SCHEMAS
}

# From the npm registry, by npm, where there is one: several versions of graphile-worker and pg-boss, for the tests of examples/migrate. npm takes nothing but what
# has the hash that test/migrate/package-lock.json says.
cluster_old_queues() {
	local source=$OUTBOX_ROOT/test/migrate folder new

	if ! command -v node >/dev/null || ! command -v npm >/dev/null || [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
		export OUTBOX_OLD_QUEUES_MISSING='node 20 or later and npm are not installed'
		return
	fi
	folder=$(cluster_cache)/old-queues-$(cat "$source"/package*.json | sha256sum | cut -c 1-16)
	if [ ! -d "$folder" ]; then
		new=$(mktemp -d "$folder.XXXXXX")
		cp "$source"/package*.json "$new"
		cluster_say 'fetching graphile-worker and pg-boss from the npm registry'
		if ! timeout 300 npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund </dev/null >"$new/log" 2>&1; then
			tail -n 3 "$new/log" >&2
			export OUTBOX_OLD_QUEUES_MISSING='graphile-worker and pg-boss cannot be had from the npm registry'
			rm -rf "$new"
			return
		fi
		chmod 755 "$new"
		mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
	fi
	export OUTBOX_OLD_QUEUES=$folder/node_modules
}

# From Maven Central, by Debian's maven; for the relay's tests. What is not as relay/test/kafka/sha256 says is not
# used. For another version: empty sha256, run this, and `(cd FOLDER && sha256sum -- *.jar)` of what it says that it kept.
cluster_kafka() {
	local source=$OUTBOX_ROOT/relay/test/kafka cache folder new

	cache=$(cluster_cache)
	folder=$cache/kafka-$(cat "$source"/* | sha256sum | cut -c 1-16)
	if [ ! -d "$folder" ]; then
		new=$(mktemp -d "$cache/kafka.XXXXXX")
		cp "$source/pom.xml" "$new"
		cluster_say 'fetching Kafka from Maven Central'
		if ! timeout 600 mvn -B -q -f "$new/pom.xml" "-Dmaven.repo.local=$new/repository" \
			org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies "-DoutputDirectory=$new/jars" \
			-DincludeScope=runtime </dev/null >"$new/log" 2>&1; then
			grep -m 2 ERROR "$new/log" >&2 || :
			export OUTBOX_KAFKA_MISSING='Kafka cannot be had from Maven Central'
			rm -rf "$new"
			return
		fi
		cluster_is_kafka "$new/jars" || cluster_die "what Maven Central sent is not Kafka as $source/sha256 has it; kept in $new/jars"
		chmod 755 "$new/jars"
		mv -T "$new/jars" "$folder" 2>/dev/null || :
		rm -rf "$new"
	fi
	cluster_is_kafka "$folder" || cluster_die "$folder is not as $source/sha256 has it; remove it"
	export OUTBOX_KAFKA=$folder
}

# cluster_is_kafka FOLDER: whether these files are in it, and no others
cluster_is_kafka() {
	(cd "$1" && sha256sum -- *) 2>&1 | diff - "$OUTBOX_ROOT/relay/test/kafka/sha256" >&2
}

cluster_mirror() {
	local mirror=${OUTBOX_MIRROR:-}

	if [ -z "$mirror" ]; then
		mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
			sed -nE 's/^(URIs:|deb( \[[^]]*\])?) +([^ ]+\/debian)\/?( .*)?$/\3/p' | head -n 1) || :
	fi
	echo "${mirror:-http://deb.debian.org/debian}"
}

cluster_sources() {
	local mirror source

	mirror=$(cluster_mirror)
	for source in "$mirror $2" "$mirror-security $2-security"; do
		# sid has no security updates; the lists of a mirror may be older than they are meant to be.
		if [ "$source" != "$mirror-security sid-security" ]; then
			printf 'Types: %s\nURIs: %s\nSuites: %s\nComponents: main\n' "$1" "${source% *}" "${source#* }"
			printf 'Check-Valid-Until: no\nSigned-By: %s\n\n' /usr/share/keyrings/debian-archive-keyring.gpg
		fi
	done
}

cluster_init() {
	local variable major

	# What the caller's environment says about other servers must not lead there.
	for variable in "${!PG@}"; do
		case $variable in
			PG_CONFIG | PG_TEST_* | PG_MAJOR | PGXS_DIR) ;;
			*) unset "$variable" ;;
		esac
	done
	unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES LANGUAGE
	export LC_ALL=C.UTF-8
	umask 022

	major=$(cluster_installed_major) && variable=/usr/lib/postgresql/$major/bin/pg_config || variable=pg_config
	variable=${PG_CONFIG:-$variable}
	PG_CONFIG=$(command -v "$variable") || cluster_die "there is no $variable"
	export PG_CONFIG
	# shellcheck disable=SC2034 # for those who source this
	PG_MAJOR=$("$PG_CONFIG" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
	PGXS_DIR=$(realpath -m "$("$PG_CONFIG" --pgxs)/../../..")

	OUTBOX_TMP=$(mktemp -d "${TMPDIR:-/tmp}/outbox.XXXXXX")
	if [ -z "$(trap -p EXIT)" ]; then
		trap cluster_cleanup EXIT
	fi
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	OUTBOX_TMP=$(cd "$OUTBOX_TMP" && pwd -P)
	if [ "$(id -u)" -eq 0 ]; then
		OUTBOX_USER=postgres
		id "$OUTBOX_USER" >/dev/null || cluster_die "there is no user $OUTBOX_USER"
		cluster_as_user=(setpriv "--reuid=$OUTBOX_USER" "--regid=$(id -gn "$OUTBOX_USER")" --init-groups)
	else
		OUTBOX_USER=$(id -un)
	fi
	mkdir "$OUTBOX_TMP/tmp" "$OUTBOX_TMP/s"
	cluster_own "$OUTBOX_TMP"
	cd "$OUTBOX_TMP" || return
	OUTBOX_COPY=$OUTBOX_TMP/copy
	cluster_ccache
	cluster_as_user+=(env CCACHE_DISABLE=1 "HOME=$OUTBOX_TMP" "TMPDIR=$OUTBOX_TMP/tmp" "USER=$OUTBOX_USER")
	as_user test -w "$OUTBOX_TMP/tmp" ||
		cluster_die "user $OUTBOX_USER cannot write to $OUTBOX_TMP; set TMPDIR to a folder that all may enter"
}

# cluster_own PATH: gives it to the unprivileged user
cluster_own() {
	if [ "$(id -u)" -eq 0 ]; then
		chown -R "$OUTBOX_USER:" "$1"
	fi
}

as_user() {
	"${cluster_as_user[@]}" "$@"
}

# Runs a command as the unprivileged user, in a session of its own.
watched() {
	local log=$1 limit=${OUTBOX_TIMEOUT:-3000} status=0
	shift
	rm -f "$OUTBOX_TMP/output"
	mkfifo "$OUTBOX_TMP/output"
	tee "$log" <"$OUTBOX_TMP/output" &
	cluster_reader=$!
	setsid timeout --kill-after=20 "$limit" "${cluster_as_user[@]}" "$@" \
		</dev/null >"$OUTBOX_TMP/output" 2>&1 &
	cluster_child=$!
	wait "$cluster_child" || status=$?
	cluster_end_session "$cluster_child"
	cluster_child=
	wait "$cluster_reader" || :
	cluster_reader=
	if [ $status -eq 124 ] || [ $status -eq 137 ]; then
		cluster_say "ended after $limit s: $*"
	fi
	return $status
}

# cluster_end_session ID: kills what is left of a session that `watched` made
cluster_end_session() {
	local stat line fields
	for stat in /proc/[0-9]*/stat; do
		# pid (command) state parent group session ...; a process may just have gone
		read -r line 2>/dev/null <"$stat" || continue
		read -ra fields <<<"${line##*) }"
		if [ "${fields[3]:-}" = "$1" ]; then
			kill -KILL "${line%% *}" 2>/dev/null || :
		fi
	done
}

# cluster_locked COMMAND...: only one run at a time builds in, or copies, this checkout
cluster_locked() {
	flock --close "$OUTBOX_ROOT/Makefile" "$@"
}

# cluster_server FOLDER: makes a copy of the server there, without the extensions.
#
# A server finds its libraries and data relative to its program, so that a copy
# of the tree is a server of its own. Programs are copied (a link would be
# followed), the rest is linked to, less any version of these extensions.
cluster_server() {
	local server=$1 bin lib share folder

	bin=$("$PG_CONFIG" --bindir)
	lib=$("$PG_CONFIG" --pkglibdir)
	share=$("$PG_CONFIG" --sharedir)
	for folder in "$bin" "$lib" "$share"; do
		mkdir -p "$server$folder" || return
	done
	cp -a "$bin/." "$server$bin" || return
	cp -as "$lib/." "$server$lib" || return
	cp -as "$share/." "$server$share" || return
	rm -f "$server$lib/outbox.so" "$server$share/extension/outbox"{,_payment,_m10,_inbox,_saga}{.control,--*}
}

cluster_build() {
	local server=$OUTBOX_TMP/server

	if [ -n "${OUTBOX_INSTALLED:-}" ]; then
		PATH=$("$PG_CONFIG" --bindir):$PATH
		return
	fi
	cluster_locked make -C "$OUTBOX_ROOT" -s "-j$(nproc)" "PG_CONFIG=$PG_CONFIG" || return
	cluster_server "$server" || return
	cluster_locked make -C "$OUTBOX_ROOT" -s "PG_CONFIG=$PG_CONFIG" "DESTDIR=$server" install || return
	cluster_own "$server"

	PATH=$server$("$PG_CONFIG" --bindir):$PATH
	export PATH
	hash -r
}

cluster_build_stop_points() {
	local tree=$OUTBOX_TMP/stop_points server=$OUTBOX_TMP/stop_points_server
	local build=(make -C "$tree" -s "-j$(nproc)" "PG_CONFIG=$PG_CONFIG" STOP_POINTS=1)

	cp -a "$OUTBOX_COPY" "$tree" || return
	"${build[@]}" || return
	cluster_server "$server" || return
	"${build[@]}" "DESTDIR=$server" install || return
	cluster_own "$server"
	# shellcheck disable=SC2034 # for those who source this
	OUTBOX_STOP_POINTS_PATH=$server$("$PG_CONFIG" --bindir):$PATH
}

cluster_copy() {
	rm -rf "$OUTBOX_COPY"
	mkdir "$OUTBOX_COPY"
	cluster_locked tar -C "$OUTBOX_ROOT" --exclude=./.git --exclude=./build --exclude=./results -cf - . |
		tar -C "$OUTBOX_COPY" --no-same-owner -xf - || return
	cluster_own "$OUTBOX_COPY"
}

cluster_start() {
	local name=$1 data=$OUTBOX_TMP/$1 line
	shift

	as_user initdb --no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C.UTF-8 \
		--pgdata="$data" >"$OUTBOX_TMP/$name.initdb" 2>&1 || {
		cat "$OUTBOX_TMP/$name.initdb" >&2
		return 1
	}
	cluster_ports=$((cluster_ports + 1))
	{
		echo "port = $((54320 + cluster_ports))"
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$OUTBOX_TMP/s'"
		echo "log_line_prefix = '%m [%p] %q%a %e '"
		echo "timezone = 'UTC'"
		for line in "$@"; do
			printf '%s\n' "$line"
		done
	} >>"$data/postgresql.conf"
	as_user pg_ctl --pgdata="$data" --log="$OUTBOX_TMP/$name.log" --wait start \
		>"$OUTBOX_TMP/$name.start" 2>&1 || {
		cat "$OUTBOX_TMP/$name.start" "$OUTBOX_TMP/$name.log" >&2
		return 1
	}
	cluster_use "$name"
}

cluster_use() {
	# The fourth line of postmaster.pid is the port.
	PGPORT=$(sed -n 4p "$OUTBOX_TMP/$1/postmaster.pid")
	export PGPORT PGHOST=$OUTBOX_TMP/s PGUSER=postgres PGDATABASE=postgres
}

cluster_stop() {
	as_user pg_ctl --pgdata="$OUTBOX_TMP/$1" --mode="${2:-fast}" --wait stop >/dev/null
}

# Safe to call at any time, and again. Whatever fails here, the rest is still done.
cluster_cleanup() {
	local status=$? file

	trap '' HUP INT TERM
	set +eu
	if [ -n "$cluster_child" ]; then
		# timeout(1) passes this on to its process group, so that tests can tidy up.
		kill -TERM "$cluster_child" 2>/dev/null || :
		wait "$cluster_child" 2>/dev/null || :
		cluster_end_session "$cluster_child"
		cluster_child=
	fi
	if [ -n "$cluster_reader" ]; then
		kill "$cluster_reader" 2>/dev/null || :
		wait "$cluster_reader" 2>/dev/null || :
		cluster_reader=
	fi
	if [ -n "$OUTBOX_TMP" ] && [ -d "$OUTBOX_TMP" ]; then
		# All servers in the folder, those that a test made and left running too.
		while read -r file; do
			as_user pg_ctl --pgdata="${file%/*}" --mode=immediate --wait stop >/dev/null 2>&1 || :
		done < <(find "$OUTBOX_TMP" -name postmaster.pid)
		# And whatever else as_user started, in a session of its own maybe.
		while read -r file; do
			kill -KILL "$(basename "${file%/*}")" 2>/dev/null
		done < <(grep -lsaF "HOME=$OUTBOX_TMP" /proc/[0-9]*/environ)
		cd /
		if [ -n "${OUTBOX_KEEP:-}" ]; then
			cluster_say "kept: $OUTBOX_TMP"
		else
			rm -rf "$OUTBOX_TMP"
		fi
	fi
	OUTBOX_TMP=
	return $status
}
