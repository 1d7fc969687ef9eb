#!/usr/bin/env bash
# Start a local PostgreSQL and MariaDB for the integration tests, in sessions that outlive the caller, unless they answer
# already. On Debian or Ubuntu, install what is missing of both, of Galera, and of what tools.mysql needs. Only for a
# server that it installed does it allow the administrator to log in on loopback without a password, as the tests expect.
#
# start-services.sh check [SECONDS]: start nothing; exit with 0 if both servers answer and were started SECONDS ago or
# earlier. Otherwise, print the last lines of the error log of each server that does not, and the memory that is left.
set -euo pipefail
source "$(dirname "$0")/packages.sh"

say() { echo "start-services: $*"; }

missing() {
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || echo postgresql
    [ -e /usr/lib/galera/libgalera_smm.so ] || echo galera-4
    # gcc and what follows it is to build mysqlclient.
    missing_programs mariadbd:mariadb-server mariadb:mariadb-client rsync:rsync ps:procps lsof:lsof \
        mmdebstrap:mmdebstrap gcc:gcc pkg-config:pkg-config mysql_config:default-libmysqlclient-dev
    ls /usr/include/python3.*/Python.h >/dev/null 2>&1 || echo python3-dev
}

# uptime_of SERVER: print how many seconds ago it was started; fail if it does not answer.
uptime_of() {
    case $1 in
    PostgreSQL)
        psql -h 127.0.0.1 -U postgres -w -XAt postgres \
            -c 'SELECT round(extract(epoch FROM now() - pg_postmaster_start_time()))'
        ;;
    MariaDB)
        mariadb --no-defaults -h 127.0.0.1 -u root -N \
            -e "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'UPTIME'"
        ;;
    esac 2>/dev/null
}

# wait_for COMMAND...: try a command once a second until it succeeds, for at most 60 seconds.
wait_for() {
    for _ in $(seq 60); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 1
    done
    say "failed for a minute: $*" >&2
    return 1
}

# The file that MariaDB logs errors to: that of its configuration, or Debian's.
mariadb_log() {
    (my_print_defaults mysqld mariadbd server 2>/dev/null || true) | sed -n 's/^--log[-_]error=//p' | tail -n 1 | grep . ||
        echo /var/log/mysql/error.log
}

if [ "${1:-}" = check ]; then
    status=0
    for server in PostgreSQL MariaDB; do
        uptime=$(uptime_of $server) && [ "$uptime" -ge "${2:-0}" ] && continue
        status=1
        say "$server does not answer, or was started a short time ago. The last lines of its log:"
        if [ $server = MariaDB ]; then tail -n 50 "$(mariadb_log)"; else tail -n 50 /var/log/postgresql/*.log; fi || true
    done
    if [ $status = 1 ]; then
        say 'memory in MiB, and processes that the kernel killed for want of it:'
        free -m || true
        dmesg 2>/dev/null | grep -iE 'out of memory|oom-kill|killed process' | tail -n 10 || true
        grep -s oom_kill /sys/fs/cgroup/memory.events || true
    fi
    exit $status
fi

absent=$(missing)
install_missing
if ! uptime_of PostgreSQL >/dev/null; then
    say 'starting PostgreSQL'
    for version in $(ls /etc/postgresql); do
        if [[ $absent == *postgresql* ]]; then
            as_root sed -i '1i host all postgres 127.0.0.1/32 trust' "/etc/postgresql/$version/main/pg_hba.conf"
        fi
        as_root pg_ctlcluster --skip-systemctl-redirect "$version" main start || true
    done
    wait_for uptime_of PostgreSQL
fi
if ! uptime_of MariaDB >/dev/null; then
    say 'starting MariaDB'
    log=$(mariadb_log)
    as_root install -d -o mysql -g mysql /run/mysqld "$(dirname "$log")"
    as_root start-stop-daemon --start --oknodo --background --chuid mysql --exec /usr/sbin/mariadbd -- --log-error="$log"
    if [[ $absent == *mariadb-server* ]]; then
        wait_for as_root mariadb --no-defaults -e \
            "ALTER USER root@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING PASSWORD('')"
    fi
    wait_for uptime_of MariaDB
fi
say 'PostgreSQL, MariaDB and Galera are ready'
