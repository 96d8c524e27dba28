#!/usr/bin/env bash
# Installs what the end-to-end tests run in Python and Node into .servers/clients: the clients that
# speak to Dwell (pika, confluent-kafka, nats-py), the receivers of Standard Webhooks, and the
# validator and the fuzzer of openapi.json, each pinned by version and hash. Needs Python 3 with pip
# and Node with npm; as root on a Debian machine it installs them. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

python_packages .servers/clients "the clients" scripts/clients.txt scripts/openapi.txt
# After the packages of Python, which replace the folder.
node_packages .servers/clients "the receivers of webhooks in Node" scripts/clients
