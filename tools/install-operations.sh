#!/usr/bin/env bash
# Install what the tests in tests/integration/operations need besides Python: nginx, Apache, openssl, Prometheus,
# buildah, mmdebstrap, the C compiler for uWSGI.
# For Debian and its derivatives. Does nothing where all of it is installed. No service is started. Exit code 0 when all
# of it is installed.
set -euo pipefail

# missing: the packages whose program or module is not installed.
missing() {
    local pair
    for pair in nginx:nginx apache2:apache2 openssl:openssl gcc:gcc systemd-analyze:systemd \
        prometheus:prometheus promtool:prometheus buildah:buildah mmdebstrap:mmdebstrap; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
    done
    [ -e /usr/lib/apache2/modules/mod_wsgi.so ] || echo libapache2-mod-wsgi-py3
}

packages=$(missing)
if [ -z "$packages" ]; then
    echo 'install-operations: nothing to install'
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install-operations: no apt-get; install by hand: $packages" >&2
    exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo)
fi
# Debian starts nginx and Apache at installation, on port 80. Here only the tests start them.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod +x "$policy"
    trap '"${sudo[@]}" rm -f "$policy"' EXIT
fi
"${sudo[@]}" apt-get update -q
# shellcheck disable=SC2086  # one word per package
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
[ -z "$(missing)" ]
