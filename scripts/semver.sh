#!/usr/bin/env bash
# Compares the public API of dwell-engine with that of an older revision: what breaks needs a version
# that may break. Needs cargo-semver-checks (`cargo install cargo-semver-checks --locked`), which reads one
# package at a time: the types that dwell-engine exports of dwell-store and dwell-core are not compared.
# usage: semver.sh [REVISION]      by default the newest tag vX.Y.Z before this commit
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

since=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || true)}
if [ -z "$since" ]; then
  say "nothing is released: no API is to be kept"
  exit 0
fi
cargo semver-checks --package dwell-engine --baseline-rev "$since" --only-explicit-features --features tower
