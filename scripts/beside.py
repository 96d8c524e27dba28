#!/usr/bin/env python3
"""Measures others in turns with Dwell, round by round on one machine, for `dwell-lab bench report --peers`.

usage: beside.py OUT [--rounds N] [--jobs N] [--rate N] [--pending N] [--native DIR] [--queues DIR] [--dwell PROGRAM]

Each folder has a program `run PEER… WORKLOAD… [flags]` that prints a line of JSON a measurement, with `peer`, `version`, `workload` and `value`:
  --native   what brokers delay by themselves: `nats-sched`, `rabbit-delayed`
  --queues   queues on Redis whose handlers do nothing: `bullmq`, `asynq`, `naive-go`, each as tuned
OUT/lines are the lines of Dwell, OUT/peers those of the others.
"""
import argparse
import json
import pathlib
import subprocess
import sys


def lines(command):
    """What a program measured; what it says on stderr is seen."""
    print("#", *command, file=sys.stderr, flush=True)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        # A round without one of them would be compared with another round.
        sys.exit(f"{command[0]} ended with {done.returncode}: nothing is compared")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def name(line):
    return f"{line['peer']} ({line['version']})" if line.get("version") else line["peer"]


def figures(line, broker, args):
    """The figures of a line, as ours are called."""
    at = {"peer": name(line), "broker": broker}
    work, value = line.get("workload"), line.get("value")
    if value is None:
        return
    if work == "drain":
        # Where `value` is not the rate, it has a name of its own.
        yield {**at, "bench": "drain", "figure": "drain", "value": line.get("msgs_per_s", value)}
        for field in ("accept_msgs_per_s", "schedule_jobs_s"):
            if line.get(field):
                yield {**at, "bench": "drain", "figure": "accept", "value": line[field]}
    elif work == "cpu":
        yield {**at, "bench": "drain", "figure": "redis_life", "value": value}
    elif work == "memory":
        yield {**at, "bench": "memory", "pending": args.jobs, "figure": "overhead", "value": line["overhead_bytes"]}
    elif work == "lateness":
        late = {**at, "bench": "lateness", "pending": args.pending, "rate": str(args.rate)}
        for ours, theirs in (("late_p50", ("p50_ms", "p50")), ("late_p99", ("p99_ms", "p99"))):
            for field in theirs:
                if field in line:
                    yield {**late, "figure": ours, "value": line[field]}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--secs", type=int, default=20)
    parser.add_argument("--native", type=pathlib.Path)
    parser.add_argument("--queues", type=pathlib.Path)
    parser.add_argument("--native-peers", nargs="*", default=["nats-sched", "rabbit-delayed"])
    parser.add_argument("--queue-peers", nargs="*", default=["bullmq", "asynq", "naive-go"])
    parser.add_argument("--lab", default="target/release/dwell-lab")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    brokers = ["nats"] + (["amqp"] if args.native and "rabbit-delayed" in args.native_peers else [])
    for number in range(1, args.rounds + 1):
        print(f"# round {number} of {args.rounds}", file=sys.stderr)
        ours, theirs = [], []
        for broker in brokers:
            bench = [args.lab, "bench", "-o", "json", "--broker", broker]
            ours += lines(bench + ["drain", "--jobs", args.jobs])
            ours += lines(bench + ["lateness", "--rate", args.rate, "--pending", args.pending, "--secs", args.secs])
        ours += lines([args.lab, "bench", "-o", "json", "memory", "--pending", args.jobs, "--load-jobs", 0])
        if args.native:
            for peer in args.native_peers:
                broker = "amqp" if peer.startswith("rabbit") else "nats"
                drain = [args.native / "run", peer, "drain", "--runs", 1, "--", "-n", args.jobs]
                late = [args.native / "run", peer, "lateness", "--runs", 1, "--"]
                late += ["-n", args.pending, "-rates", args.rate, "-secs", args.secs]
                theirs += [figure for line in lines(drain) + lines(late) for figure in figures(line, broker, args)]
        if args.queues:
            for peer in args.queue_peers:
                work = [args.queues / "run", peer, "drain", "memory", "cpu", "lateness", "--settings=tuned", "--reps=1"]
                work += [f"--n={args.jobs}", f"--pending={args.pending}", f"--rates={args.rate}", f"--secs={args.secs}"]
                # A queue on Redis has no broker: it stands beside the fastest way through one.
                theirs += [figure for line in lines(work) for figure in figures(line, "nats", args)]
        for path, found in (("lines", ours), ("peers", theirs)):
            with open(args.out / path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in found)


main()
