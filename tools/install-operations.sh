#!/usr/bin/env bash
# Install what the tests in tests/integration/operations need besides Python: nginx, Apache, memcached, openssl, Prometheus,
# buildah, mmdebstrap, the C compiler for uWSGI.
# Does nothing where all of it is installed. Exit code 0 when it is.
set -euo pipefail
source "$(dirname "$0")/packages.sh"

missing() {
    missing_programs nginx:nginx apache2:apache2 openssl:openssl gcc:gcc systemd-analyze:systemd memcached:memcached \
        prometheus:prometheus promtool:prometheus buildah:buildah mmdebstrap:mmdebstrap
    [ -e /usr/lib/apache2/modules/mod_wsgi.so ] || echo libapache2-mod-wsgi-py3
}

install_missing
