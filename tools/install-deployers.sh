#!/usr/bin/env bash
# Install what the tests in tests/integration/deployers need besides Python and MariaDB (tools/start-services.sh): Apache,
# mod_wsgi, uWSGI, memcached, systemd and its Python module, and the venv of Debian's own Python, for which mod_wsgi is built.
# Does nothing where all of it is installed. Exit code 0 when it is.
set -euo pipefail
source "$(dirname "$0")/packages.sh"

missing() {
    missing_programs apache2:apache2 memcached:memcached uwsgi:uwsgi-core uwsgi_python3:uwsgi-plugin-python3 \
        systemctl:systemd curl:curl
    [ -e /usr/lib/apache2/modules/mod_wsgi.so ] || echo libapache2-mod-wsgi-py3
    /usr/bin/python3 -c 'import systemd' 2>/dev/null || echo python3-systemd
    /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

install_missing
