#!/usr/bin/env bash
# Builds an older revision of Dwell beside this tree, and runs the tests that need it: both on one
# namespace, and each reads what the other wrote.
# usage: upgrade.sh REVISION      whose schema is that of this tree
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

revision=$(git rev-parse --verify "${1:?which revision?}^{commit}")
tree=$PWD/target/upgrade/tree
git worktree prune
[ -e "$tree" ] || git worktree add --detach "$tree" "$revision" >/dev/null
git -C "$tree" checkout --detach --quiet "$revision"
say "building $(git log -1 --format='%h %s' "$revision")"
cargo build --quiet --locked --manifest-path "$tree/Cargo.toml" --target-dir target/upgrade/build --no-default-features --features nats --bin dwell
DWELL_OLD_PROGRAM=$PWD/target/upgrade/build/debug/dwell cargo test --workspace --locked --test live upgrade -- --include-ignored --nocapture
