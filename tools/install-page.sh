#!/usr/bin/env bash
# Install what the tests in tests/integration/page need besides Python: Chromium and a font.
# Does nothing where both are installed. Exit code 0 when they are.
set -euo pipefail
source "$(dirname "$0")/packages.sh"

missing() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo chromium
    fc-list 2>/dev/null | grep -q . || echo fonts-dejavu-core fontconfig
}

install_missing
