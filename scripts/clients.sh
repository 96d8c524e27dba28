#!/usr/bin/env bash
# Installs what the end-to-end tests run in Python into .servers/clients: the clients that speak to Dwell (pika, confluent-kafka, nats-py), and the
# validator and the fuzzer of openapi.json, each pinned by version and hash. Needs Python 3 with pip; as root on a Debian machine it installs them. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

folder=.servers/clients
stamp=$(cat scripts/clients.txt scripts/openapi.txt && python3 --version 2>/dev/null) || stamp=none
if [ "$stamp" != none ] && [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then
    say "clients: $folder"
    exit 0
fi

if ! python3 -m pip --version >/dev/null 2>&1; then
    say "no Python with pip: asking apt for python3-pip"
    apt_install python3-pip || fail "found no Python 3 with pip, which the end-to-end tests need for their clients: install it by the means of your system"
    stamp=$(cat scripts/clients.txt scripts/openapi.txt && python3 --version)
fi
rm -rf "$folder" "$folder.$$"
mkdir -p .servers
PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: --require-hashes \
    --target "$folder.$$" --requirement scripts/clients.txt --requirement scripts/openapi.txt >&2 \
    || fail "pip could not install what scripts/clients.txt and scripts/openapi.txt name"
printf '%s\n' "$stamp" >"$folder.$$/stamp"
mv "$folder.$$" "$folder"
say "clients: $folder"
