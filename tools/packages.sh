# Sourced by the scripts that install what tests need. They define `missing`, which prints the packages that are not there.
# For Debian and its derivatives. No service is started.

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# missing_programs PROGRAM:PACKAGE...: print the packages of the programs that are not there.
missing_programs() {
    local pair
    for pair in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || echo "${pair##*:}"
    done
}

# install_missing: install them, if there are any. Exit code 0 when nothing is missing afterwards.
install_missing() {
    local packages name
    name=$(basename "$0" .sh)
    packages=$(missing)
    if [ -z "$packages" ]; then
        echo "$name: nothing to install"
        return
    fi
    if ! command -v apt-get >/dev/null; then
        echo "$name: no apt-get; install by hand: $packages" >&2
        return 1
    fi
    # Debian starts servers at installation, nginx and Apache on port 80. Here only the tests start them.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
        as_root chmod +x /usr/sbin/policy-rc.d
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    as_root apt-get update -q
    # shellcheck disable=SC2086  # one word per package
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
    [ -z "$(missing)" ]
}
