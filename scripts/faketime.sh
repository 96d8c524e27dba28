#!/usr/bin/env bash
# Finds libfaketime, or installs it from Debian: the tests give one instance a wrong clock with it. Without it that test says so and is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

target=.servers/lib/libfaketime.so.1
find_it() { ls /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 /usr/local/lib/faketime/libfaketime.so.1 2>/dev/null | head -1; }

[ ! -e "$target" ] || exit 0
found=$(find_it || true)
if [ -z "$found" ]; then
    apt_install faketime || true
    found=$(find_it || true)
fi
if [ -z "$found" ]; then
    say "warning: no libfaketime: the test of a wrong clock will be skipped (Debian has it in the package faketime)"
    exit 0
fi
mkdir -p .servers/lib
ln -sf "$found" "$target"
