#!/usr/bin/env bash
# Make a release of the commit that is checked out: a source distribution and a wheel in dist/, checked and tried.
# "release.sh publish" also signs both and uploads them to the package index; it needs a tagged commit and, for the
# identity of the signature and of the upload, a job of the forge with the permission id-token (.github/workflows/ci.yml).
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
scratch=$(mktemp -d)
service=
trap '[ -z "$service" ] || kill "$service" 2>/dev/null || true; rm -rf "$scratch"' EXIT

fail() {
    echo "release.sh: $*" >&2
    exit 1
}

step() {
    echo "=== $*"
}

tag=$(git describe --tags --exact-match 2>/dev/null || true)
if [ "${1:-}" = publish ]; then
    [ -n "$tag" ] || fail 'the commit has no tag, which is the version of a release'
    [ -z "$(git status --porcelain)" ] || fail 'the tree has changes that are not in the commit'
fi

step "Build"
python3 -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install --quiet build==1.6.1 twine==7.0.0 pypi-attestations==0.0.30
rm -rf dist
# The wheel is built from the source distribution, so that this has all that is needed.
"$scratch/tools/bin/python" -m build --outdir dist .
"$scratch/tools/bin/twine" check --strict dist/*
wheel=$(echo dist/*.whl)
version=$(basename "$wheel" | cut -d- -f2)
[ -z "$tag" ] || [ "$version" = "$tag" ] || fail "the tag is $tag, but the version is $version"

step "Install $wheel on a bare Python, and start it"
python3 -m venv "$scratch/bare"
"$scratch/bare/bin/pip" install --quiet "$wheel"
# The directory has nothing of this clone, so only what is installed can be found.
mkdir "$scratch/empty"
for program in placement-api placement-manage placement-status; do
    said=$(cd "$scratch/empty" && "$scratch/bare/bin/$program" --version)
    [[ "$said" == *"$version"* ]] || fail "$program --version says $said instead of $version"
done
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
(cd "$scratch/empty" && exec "$scratch/bare/bin/placement-api" --dev --bind "127.0.0.1:$port") >"$scratch/log" 2>&1 &
service=$!
ask() {
    python3 -c 'import sys, urllib.request as r
print(r.urlopen(r.Request(sys.argv[1], headers={"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.29"})).read().decode())' \
        "http://127.0.0.1:$port$1"
}
for _ in $(seq 120); do
    kill -0 "$service" 2>/dev/null || { cat "$scratch/log"; fail 'the service has ended'; }
    ask / >/dev/null 2>&1 && break
    sleep 0.5
done
for path in / '/allocation_candidates?resources=VCPU:1'; do
    ask "$path" || { cat "$scratch/log"; fail "the service does not answer GET $path"; }
done
kill -TERM "$service"
wait "$service" || fail "the service ended with exit code $?"
service=

(cd dist && sha256sum -- *)
[ "${1:-}" = publish ] || { step "Version $version would be published. Not done: it needs the argument publish"; exit; }

step "Sign, and publish on the index"
[ -n "${ACTIONS_ID_TOKEN_REQUEST_URL:-}" ] || fail 'there is no identity to sign with; a job of the forge has one'
# Both find the identity of the job. twine exchanges it for a token of the project, so no password is stored.
"$scratch/tools/bin/python" -m pypi_attestations sign dist/*.tar.gz dist/*.whl
"$scratch/tools/bin/twine" upload --non-interactive --attestations dist/*
