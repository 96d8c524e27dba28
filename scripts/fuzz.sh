#!/usr/bin/env bash
# Looks for inputs that break a promise of Dwell's parsers, led by coverage: libFuzzer over the
# targets of fuzz/, each for its part of the time.
# Wants a C++ compiler and the Rust that everything else takes: coverage is a pass of LLVM that
# stable Rust has.
# usage: fuzz.sh SECONDS [TARGET…]      one process, one core; what is new joins fuzz/corpus, what broke stays in fuzz/found
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

seconds=${1:?how many seconds in total?}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(allow http record request secrets units wire)
host=$(rustc -vV | sed -n 's/^host: //p')

# Named as a target, so that build scripts and macros are not instrumented.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
say "building the driver; the first time takes minutes"
RUSTFLAGS="$flags" cargo build --quiet --release --locked --manifest-path fuzz/driver/Cargo.toml --target-dir target/fuzz --target "$host"
driver=$PWD/target/fuzz/$host/release/dwell-fuzz-driver

# A corpus is text, an input a line in base64: Git packs it well, and no test needs a library for it.

# unpack ARCHIVE FOLDER: a file for each line.
unpack() {
    local input number=0
    while read -r input; do
        number=$((number + 1))
        base64 -d <<<"$input" >"$2/$number"
    done <"$1"
}

# pack FOLDER ARCHIVE: sorted, so that the same inputs make the same archive whatever their names.
pack() {
    local input
    for input in "$1"/*; do base64 -w 0 "$input" && echo; done | LC_ALL=C sort -u -o "$2"
}

mkdir -p fuzz/found
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for target in "${targets[@]}"; do
    archive=fuzz/corpus/$target.base64
    # New inputs gather outside the corpus.
    old=$work/$target/old new=$work/$target/new kept=$work/$target/kept
    mkdir -p "$old" "$new" "$kept"
    unpack "$archive" "$old"
    seeds=("$old")
    [ ! -d "fuzz/regressions/$target" ] || seeds+=("fuzz/regressions/$target")
    say "$target: $((seconds / ${#targets[@]})) s"
    DWELL_FUZZ_TARGET=$target "$driver" "$new" "${seeds[@]}" -max_total_time=$((seconds / ${#targets[@]})) \
        -max_len=4096 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="fuzz/found/$target-" -print_final_stats=1 >"$work/log" 2>&1 || failed=1
    grep -E 'stat::(number_of_executed_units|average_exec_per_sec)|^SUMMARY|panicked|Test unit written' "$work/log" || tail -5 "$work/log"
    grep -E 'cov:' "$work/log" | tail -1 || true
    if ls "fuzz/found/$target-"* >/dev/null 2>&1; then sed -n '/panicked/,/note:/p' "$work/log" | head -8; fi
    # Small, and few: what reaches code that nothing else reaches, however often it does.
    if DWELL_FUZZ_TARGET=$target "$driver" -merge=1 -use_counters=0 -max_len=400 "$kept" "$old" "$new" >"$work/log" 2>&1; then
        pack "$kept" "$archive"
    else
        failed=1
    fi
    say "$target: $(wc -l <"$archive") inputs, $(wc -c <"$archive") bytes"
done
rmdir fuzz/found 2>/dev/null || say "inputs that broke a promise: fuzz/found; with the mend, each goes to fuzz/regressions under a name that says what it is"
exit $failed
