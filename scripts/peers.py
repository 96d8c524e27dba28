#!/usr/bin/env python3
"""Measures Dwell beside bare relays and native delays that others wrote, in turns, and writes a table of the ratios.

usage: peers.py HARNESS OUT.md [--dwell PROGRAM] [--rounds N] [--jobs N] [--brokers nats amqp kafka] [--lines FILE]

HARNESS has a program `run PEER WORKLOAD --runs 1 -- [flags]` that prints a line of JSON a measurement. Each round measures every peer once, so that
a slower hour affects all alike; a ratio is that of one round. FILE keeps the lines: what it has already is not measured again.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

QUORUM = ["-variant", "quorum"]
# Per broker: the relay, the native delay, and Dwell.
RUNS = {
    "nats": [("relay-nats", "relay", []), ("nats-sched", "drain", ["-n"]), ("dwell-nats", "drain", ["-n"])],
    "amqp": [("relay-amqp", "relay", QUORUM), ("dwell-amqp", "drain", [*QUORUM, "-n"])],
    "kafka": [("relay-kafka", "relay", []), ("dwell-kafka", "drain", ["-n"])],
}
# What the table compares: broker, name, peer and figure of Dwell, peer and figure beside it.
RATIOS = [
    ("nats", "drain against NATS' own schedules", ("dwell-nats", "msgs_per_s"), ("nats-sched", "msgs_per_s")),
    ("nats", "drain against a bare relay, NATS", ("dwell-nats", "msgs_per_s"), ("relay-nats", "value")),
    ("nats", "accept against a bare relay, NATS", ("dwell-nats", "accept_msgs_per_s"), ("relay-nats", "value")),
    ("amqp", "drain against a bare relay, RabbitMQ, quorum queues", ("dwell-amqp", "msgs_per_s"), ("relay-amqp", "value")),
    ("amqp", "accept against a bare relay, RabbitMQ, quorum queues", ("dwell-amqp", "accept_msgs_per_s"), ("relay-amqp", "value")),
    ("kafka", "drain against a bare relay, Kafka", ("dwell-kafka", "msgs_per_s"), ("relay-kafka", "value")),
]


def measured(harness, peer, workload, flags, jobs):
    """The last line of one measurement."""
    command = [harness / "run", peer, workload, "--runs", "1", "--", *flags, *([str(jobs)] if flags and flags[-1] == "-n" else [])]
    print("#", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found or found[-1].get("value") is None:
        sys.exit(f"{peer} was not measured: {found[-1].get('note', '') if found else f'it ended with {done.returncode}'}")
    wrong = {what: found[-1][what] for what in ("lost", "early", "dup") if found[-1].get(what)}
    if wrong:
        sys.exit(f"{peer}: {wrong}")
    return found[-1]


def spread(values):
    return f"{statistics.median(values):,.2f} ({min(values):,.2f} – {max(values):,.2f})"


def whole(values):
    return f"{statistics.median(values):,.0f}".replace(",", " ")


def table(rounds, brokers):
    """Median and range of each ratio."""
    rows = ["| what | Dwell, a second | beside it | ratio |", "|---|---|---|---|"]
    for broker, what, (own, own_figure), (other, other_figure) in RATIOS:
        pairs = [(one[own][own_figure], one[other][other_figure]) for one in rounds if own in one and other in one]
        if broker in brokers and pairs:
            ours, theirs = zip(*pairs)
            rows.append(f"| {what} | {whole(ours)} | {whole(theirs)} | {spread([a / b for a, b in pairs])} |")
    return rows


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("harness", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dwell", type=pathlib.Path, default=pathlib.Path("target/release/dwell"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--brokers", nargs="*", default=list(RUNS))
    parser.add_argument("--lines", type=pathlib.Path, default=pathlib.Path("target/bench/peers.jsonl"))
    args = parser.parse_args()
    os.environ["DWELL_BIN"] = str(args.dwell.resolve())
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    rounds = [json.loads(line) for line in args.lines.read_text().splitlines()] if args.lines.exists() else []
    while len(rounds) < args.rounds:
        runs = [run for broker in args.brokers for run in RUNS[broker]]
        one = {peer: measured(args.harness, peer, workload, flags, args.jobs) for peer, workload, flags in runs}
        rounds.append(one)
        with open(args.lines, "a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
    head = [
        "# Measured: beside bare relays and native delays",
        "",
        f"`make bench PEERS=DIR`: {args.jobs} messages of 200 bytes, {len(rounds)} rounds in turns on one",
        "machine, which all processes share; medians, and the range of the ratio of each round. A relay",
        "consumes, publishes, waits for the confirm and acknowledges, without a delay and without a reader on",
        "its target. [Performance](../../explanation/performance.md) summarises this page.",
        "",
    ]
    args.out.write_text("\n".join(head + table(rounds, args.brokers)) + "\n", encoding="utf-8")
    print(args.out)


main()
