#!/usr/bin/env bash
# Install what the tests in tests/integration/page need besides Python: Chromium and a font.
# For Debian and its derivatives. Does nothing where both are installed. Exit code 0 when they are.
set -euo pipefail

# missing: the packages that are not installed.
missing() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo chromium
    fc-list 2>/dev/null | grep -q . || echo fonts-dejavu-core fontconfig
}

packages=$(missing)
if [ -z "$packages" ]; then
    echo 'install-page: nothing to install'
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install-page: no apt-get; install by hand: $packages" >&2
    exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo)
fi
"${sudo[@]}" apt-get update -q
# shellcheck disable=SC2086  # one word per package
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
[ -z "$(missing)" ]
