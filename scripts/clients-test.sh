#!/usr/bin/env bash
# Tests the files in clients/, each by the tools of its own language. Nothing is installed; servers are
# fakes on free ports of 127.0.0.1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

say "clients/python"
(cd clients/python && python3 -B -m unittest -q test_dwell)
say "clients/node"
(cd clients/node && node --test)
# `make clients` installs Python and Node, and nothing else in the tests needs Go.
if command -v go >/dev/null; then
    say "clients/go"
    (cd clients/go && go vet . && go test -count=1 .)
else
    say "warning: no go, clients/go is not tested"
fi
