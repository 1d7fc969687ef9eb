#!/bin/sh
# Start a local PostgreSQL and MariaDB, and install the Galera library, for the integration tests.
#
# Does nothing when they answer already. Starts what is installed but stopped. As root on Debian or Ubuntu it
# installs what is missing; only for a server that it installed itself does it allow the administrator to log in
# on loopback without a password, which is what the tests expect by default. A server that it starts is in a session
# of its own: it outlives the caller.
#
# start-services.sh check [SECONDS]: start nothing; exit with 0 if both servers answer and were started SECONDS ago or
# earlier. Otherwise, print the last lines of the error log of each server that does not, and the memory that is left.
set -eu

say() { echo "start-services: $*"; }

fail() {
    say "$*" >&2
    exit 1
}

postgresql_answers() { psql -h 127.0.0.1 -U postgres -w -c 'SELECT 1' postgres >/dev/null 2>&1; }

mariadb_answers() { mariadb --no-defaults -h 127.0.0.1 -u root -e 'SELECT 1' >/dev/null 2>&1; }

# Try a command once a second until it succeeds, for at most 60 seconds.
wait_for() {
    for _ in $(seq 60); do
        if "$1"; then return 0; fi
        sleep 1
    done
    return 1
}

# Print the file that MariaDB logs errors to: that of its configuration, or Debian's.
mariadb_log() {
    configured=$(my_print_defaults mysqld mariadbd server 2>/dev/null | sed -n 's/^--log[-_]error=//p' | tail -n 1)
    echo "${configured:-/var/log/mysql/error.log}"
}

# runs_since SECONDS SERVER: whether the server answers, and was started that long ago.
runs_since() {
    if [ "$2" = PostgreSQL ]; then
        query='SELECT round(extract(epoch FROM now() - pg_postmaster_start_time()))'
        uptime=$(psql -h 127.0.0.1 -U postgres -w -XAt -c "$query" postgres 2>/dev/null) || return 1
    else
        query="SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'UPTIME'"
        uptime=$(mariadb --no-defaults -h 127.0.0.1 -u root -N -e "$query" 2>/dev/null) || return 1
    fi
    [ "$uptime" -ge "$1" ]
}

# report SERVER LOG...: print what may tell why a server ended.
report() {
    say "$1 does not answer, or was started a short time ago"
    shift
    for log in "$@"; do
        say "the last lines of $log:"
        tail -n 50 "$log" || true
    done
}

check() {
    up=true
    runs_since "$1" PostgreSQL || { up=false; report PostgreSQL /var/log/postgresql/*.log; }
    runs_since "$1" MariaDB || { up=false; report MariaDB "$(mariadb_log)"; }
    if ! $up; then
        say 'memory in MiB, and processes that the kernel killed for want of it:'
        free -m || true
        dmesg 2>/dev/null | grep -iE 'out of memory|oom-kill|killed process' | tail -n 10 || true
        grep -s oom_kill /sys/fs/cgroup/memory.events || true
    fi
    $up
}

missing_packages() {
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || echo postgresql
    command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || echo mariadb-server
    command -v mariadb >/dev/null || echo mariadb-client
    [ -e /usr/lib/galera/libgalera_smm.so ] || echo galera-4
    command -v rsync >/dev/null || echo rsync
    command -v ps >/dev/null || echo procps
    command -v lsof >/dev/null || echo lsof
    # To build mysqlclient.
    command -v gcc >/dev/null || echo gcc
    command -v pkg-config >/dev/null || echo pkg-config
    command -v mariadb_config >/dev/null || command -v mysql_config >/dev/null || echo default-libmysqlclient-dev
}

install_packages() {
    [ "$(id -u)" = 0 ] || fail "missing: $*. Install them, or run this as root."
    command -v apt-get >/dev/null || fail "missing: $*. There is no apt-get here; install them by hand."
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    # shellcheck disable=SC2068  # one package per word
    apt-get -qq install -y --no-install-recommends $@ >/dev/null
}

start_postgresql() {
    for version in $(ls /etc/postgresql); do
        pg_ctlcluster --skip-systemctl-redirect "$version" main start || true
    done
}

start_mariadb() {
    log=$(mariadb_log)
    install -d -o mysql -g mysql /run/mysqld "$(dirname "$log")"
    start-stop-daemon --start --oknodo --background --exec /usr/sbin/mariadbd -- --log-error="$log"
}

# Only for a server that this run installed: the tests connect over TCP on loopback without a password.
open_postgresql() {
    for file in /etc/postgresql/*/main/pg_hba.conf; do
        sed -i '1i host all postgres 127.0.0.1/32 trust' "$file"
    done
    for version in $(ls /etc/postgresql); do
        pg_ctlcluster --skip-systemctl-redirect "$version" main reload
    done
}

mariadb_socket_answers() { mariadb --no-defaults -e 'SELECT 1' >/dev/null 2>&1; }

open_mariadb() {
    wait_for mariadb_socket_answers || fail 'MariaDB does not answer on its socket'
    mariadb --no-defaults -e \
        "ALTER USER root@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING PASSWORD('')"
}

if [ "${1:-}" = check ]; then
    check "${2:-0}"
    exit
fi

packages=$(missing_packages)
# shellcheck disable=SC2086  # one package per word
[ -z "$packages" ] || install_packages $packages

if ! postgresql_answers; then
    say 'starting PostgreSQL'
    start_postgresql
    case " $(echo $packages) " in *' postgresql '*) open_postgresql ;; esac
    wait_for postgresql_answers || fail 'PostgreSQL does not answer postgres@127.0.0.1 without a password'
fi
if ! mariadb_answers; then
    say 'starting MariaDB'
    start_mariadb
    case " $(echo $packages) " in *' mariadb-server '*) open_mariadb ;; esac
    wait_for mariadb_answers || fail 'MariaDB does not answer root@127.0.0.1 without a password'
fi
say 'PostgreSQL, MariaDB and Galera are ready'
