#!/usr/bin/env bash
# suites.sh COMMAND…: runs a `cargo test`, shows its output, and ends with the time of each suite.
# Exits as the command does.
set -uo pipefail

"$@" 2>&1 | awk '
    { print; fflush() }
    # "Running tests/it/main.rs (target/debug/deps/it-0123)", "Running unittests src/lib.rs
    # (target/debug/deps/dwell-0123)"
    $1 == "Running" && $NF ~ /^\(/ { suite = $NF; gsub(/^.*\/|-[0-9a-f]*\)$/, "", suite); suite = suite "  " $(NF - 1) }
    $1 == "Doc-tests" { suite = $2 "  (examples)" }
    /^test result:/ && match($0, /finished in [0-9.]+s/) {
        seconds = substr($0, RSTART + 12, RLENGTH - 13)
        # Suites without a test say nothing.
        if ($4 + $6 > 0) rows[++count] = sprintf("%8.1f s  %5d passed  %3d failed  %s", seconds, $4, $6, suite)
        total += seconds
    }
    END {
        if (!count) exit
        print "\ntime of each suite, without building:"
        for (row = 1; row <= count; row++) print rows[row]
        printf "%8.1f s  in all\n", total
    }'
