#!/usr/bin/env bash
# Measures a standard set and writes performance.md and its pictures in docs/reference/measured and
# target/bench/performance.html.
# usage: bench.sh [BROKER…]       nats, kafka and amqp where none is named
# QUICK=1: a short form, one run of little, written to target/bench alone. RUNS: how often each is
# measured (5). BIG: the most jobs that wait (1000000).
# The measurements stay in target/bench: lines has a line of JSON each, queue.json, http-drain.json and
# http-hosts.json the others. A measurement that is there already is not repeated; remove the folder to begin
# anew.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

out=target/bench
program=${DWELL_BENCH_PROGRAM:-target/release/dwell-lab}
brokers=("$@")
[ ${#brokers[@]} -gt 0 ] || brokers=(nats kafka amqp)

if [ "${QUICK:-}" = 1 ]; then
  out=$out/quick
  rm -rf "$out"
  runs=${RUNS:-1} jobs=10000 small=1000 big=${BIG:-10000} rates=200,2000 secs=3 times=3 load=50 docs=$out
else
  runs=${RUNS:-5} jobs=100000 small=10000 big=${BIG:-1000000} rates=200,2000,half,half-stored secs=10 times=10 load=500 docs=docs/reference/measured
fi
mkdir -p "$out/lines"

# A measurement, unless it is there already: a file a command, so that a set that was broken off
# goes on where it was.
measure() {
  local file
  file=$out/lines/$(printf '%s' "$*" | tr -c 'a-z0-9' '-').json
  [ ! -s "$file" ] || return 0
  say "dwell-lab bench $*"
  "$program" bench -o json "$@" >"$file.part"
  mv "$file.part" "$file"
}

for broker in "${brokers[@]}"; do
  measure drain --broker "$broker" --jobs $jobs --runs "$runs"
  # More than a client reads ahead: of what is in its memory when time begins, a source is no measure.
  measure schedule --broker "$broker" --jobs $((4 * jobs)) --pending $jobs --runs "$runs"
  measure memory --broker "$broker" --pending $jobs --load-jobs $load --runs "$runs"
  # Waiting jobs are in Redis, whatever the broker: many waiting jobs are measured on one broker.
  pending=$small
  if [ "$broker" = "${brokers[0]}" ]; then pending=$small,$big; fi
  measure lateness --broker "$broker" --rate $rates --pending $pending --secs $secs --runs "$runs"
done
measure scale --broker "${brokers[0]}" --jobs $jobs --instances 1,2,4 --buckets 16,1,64 --runs "$runs"
# The cost of a job in Redis, by the size of its body.
for body in 200 1000 10000; do
  measure memory --pending $small --load-jobs 0 --body $body --runs 1
  measure drain --alone --jobs $small --body $body --runs 1
done
measure start --pending 0,"$big" --times $times --secs $secs --runs 1
measure memory --pending "$big" --load-jobs 0 --runs 1

# Consumers that fetch, and URLs: each has figures of its own (docs/explanation/performance.md).
apart() {
  local file=$out/$1.json
  shift
  [ ! -s "$file" ] || return 0
  say "dwell-lab $*"
  "$program" -o json "$@" >"$file.part"
  mv "$file.part" "$file"
  say "written: $file"
}
apart queue queue bench --jobs $((2 * jobs)) --secs $secs --idle $((jobs / 10))
apart http-drain http drain --jobs $jobs --runs "$runs"
apart http-hosts http hosts --secs $((6 * secs)) --hosts $((jobs / 100)) --hanging $((jobs / 1000))

"$program" bench report "$out"/lines/*.json --docs "$docs" --html "$out/performance.html"
say "written: $docs/performance.md, $docs/images/performance-*.svg, $out/performance.html"
