#!/usr/bin/env python3
"""Measures Dwell beside bare relays and native delays that others wrote, in turns, and writes a table of the ratios.

usage: peers.py HARNESS OUT.md [--queues HARNESS] [--lab PROGRAM]
       [--dwell PROGRAM] [--rounds N] [--jobs N] [--brokers nats amqp kafka] [--lines FILE]

HARNESS has a program `run PEER WORKLOAD --runs 1 -- [flags]` that prints a line of JSON a measurement. Each round measures every peer once, so that
a slower hour affects all alike; a ratio is that of one round. FILE keeps the lines: what it has already is not measured again.
The HARNESS of queues has a program `run PEER drain cpu --settings=tuned --reps=1 --n=N` that prints a line of JSON for `drain` and one
for `cpu`. These queues run on a Redis without an append-only file, and so does the Dwell that is compared with them.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

QUORUM = ["-variant", "quorum"]
# Dwell beside queues on Redis: on a Redis that persists as little as theirs.
WITHOUT_AOF = "dwell-nats without an append-only file"
QUEUES = ["bullmq", "asynq", "naive-go"]
# Per broker: the relay, the native delay, and Dwell.
RUNS = {
    "nats": [("relay-nats", "relay", []), ("nats-sched", "drain", ["-n"]), ("dwell-nats", "drain", ["-n"])],
    "amqp": [("relay-amqp", "relay", QUORUM), ("dwell-amqp", "drain", [*QUORUM, "-n"])],
    "kafka": [("relay-kafka", "relay", []), ("dwell-kafka", "drain", ["-n"])],
}
# Dwell's connectors with nothing between them, by `dwell-lab bench relay`.
CONNECTORS = "{} connectors"
# What the table compares: broker, name, peer and figure of Dwell, peer and figure beside it.
RATIOS = [
    ("nats", "drain against NATS' own schedules", ("dwell-nats", "msgs_per_s"), ("nats-sched", "msgs_per_s")),
    ("nats", "drain against a bare relay, NATS", ("dwell-nats", "msgs_per_s"), ("relay-nats", "value")),
    ("nats", "accept against a bare relay, NATS", ("dwell-nats", "accept_msgs_per_s"), ("relay-nats", "value")),
    ("nats", "relay over Dwell's connectors against a bare relay, NATS", ("nats connectors", "value"), ("relay-nats", "value")),
    ("amqp", "drain against a bare relay, RabbitMQ, quorum queues", ("dwell-amqp", "msgs_per_s"), ("relay-amqp", "value")),
    ("amqp", "accept against a bare relay, RabbitMQ, quorum queues", ("dwell-amqp", "accept_msgs_per_s"), ("relay-amqp", "value")),
    ("amqp", "relay over Dwell's connectors against a bare relay, RabbitMQ", ("amqp connectors", "value"), ("relay-amqp", "value")),
    ("kafka", "accept against a bare relay, Kafka", ("dwell-kafka", "accept_msgs_per_s"), ("relay-kafka", "value")),
    ("kafka", "drain against a bare relay, Kafka", ("dwell-kafka", "msgs_per_s"), ("relay-kafka", "value")),
    ("kafka", "relay over Dwell's connectors against a bare relay, Kafka", ("kafka connectors", "value"), ("relay-kafka", "value")),
    ("queues", "drain over NATS against BullMQ", (WITHOUT_AOF, "msgs_per_s"), ("bullmq", "msgs_per_s")),
    ("queues", "drain over NATS against asynq", (WITHOUT_AOF, "msgs_per_s"), ("asynq", "msgs_per_s")),
    ("queues", "µs of Redis for the life of a job, against BullMQ", (WITHOUT_AOF, "redis_us"), ("bullmq", "redis_us")),
    ("queues", "µs of Redis for the life of a job, against a bare loop", (WITHOUT_AOF, "redis_us"), ("naive-go", "redis_us")),
]


def measured(harness, peer, workload, flags, jobs):
    """The line of one measurement."""
    command = [harness / "run", peer, workload, "--runs", "1", "--", *flags, *([str(jobs)] if flags and flags[-1] == "-n" else [])]
    print("#", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found or any(line.get("value") is None for line in found):
        sys.exit(f"{peer} was not measured: {found[-1].get('note', '') if found else f'it ended with {done.returncode}'}")
    # A relay over NATS is measured twice: the one that acknowledges each message is what Dwell does.
    line = next((line for line in found if "ack explicit" in line.get("settings", "")), found[-1])
    wrong = {what: line[what] for what in ("lost", "early", "dup") if line.get(what)}
    if wrong:
        sys.exit(f"{peer}: {wrong}")
    return line


def measured_connectors(lab, broker, jobs):
    """The rate of a relay over Dwell's connectors."""
    command = [lab, "bench", "-o", "json", "--broker", broker, "relay", "--jobs", str(jobs)]
    print("#", *command, file=sys.stderr, flush=True)
    line = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return {"value": line["figures"]["relay"]["median"], "cpu_us": line["figures"]["relay_cpu"]["median"]}


def measured_queue(harness, peer, jobs):
    """The rate of a drain, and the CPU time of Redis for one job."""
    command = [harness / "run", peer, "drain", "cpu", "--settings=tuned", "--reps=1", f"--n={jobs}"]
    print("#", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lines = {line["workload"]: line for line in map(json.loads, done.stdout.splitlines()) if "workload" in line}
    if not {"drain", "cpu"} <= set(lines):
        sys.exit(f"{peer} was not measured: {done.stdout}")
    if lines["drain"]["missing"] or lines["drain"]["dups"]:
        sys.exit(f"{peer}: {lines['drain']}")
    return {"msgs_per_s": lines["drain"]["value"], "redis_us": lines["cpu"]["value"]}


def measured_queues(native, harness, jobs):
    """One round of the queues on Redis, and of Dwell."""
    own = measured(native, "dwell-nats", "drain", ["-redis-aof", "no", "-n"], jobs)
    own["redis_us"] = (own["redis_cpu_accept_s"] + own["redis_cpu_drain_s"]) * 1e6 / jobs
    return {WITHOUT_AOF: own, **{peer: measured_queue(harness, peer, jobs) for peer in QUEUES}}


def spread(values):
    return f"{statistics.median(values):,.2f} ({min(values):,.2f} – {max(values):,.2f})"


def middle(values):
    median = statistics.median(values)
    return f"{median:.1f}" if median < 1000 else f"{median:,.0f}".replace(",", " ")


def table(rounds, brokers):
    """Median and range of each ratio."""
    rows = ["| what | Dwell | beside it | ratio |", "|---|---|---|---|"]
    for broker, what, (own, own_figure), (other, other_figure) in RATIOS:
        pairs = [(one[own][own_figure], one[other][other_figure]) for one in rounds if own in one and other in one]
        if broker in [*brokers, "queues"] and pairs:
            ours, theirs = zip(*pairs)
            rows.append(f"| {what} | {middle(ours)} | {middle(theirs)} | {spread([a / b for a, b in pairs])} |")
    return rows


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("harness", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--queues", type=pathlib.Path)
    parser.add_argument("--lab", type=pathlib.Path)
    parser.add_argument("--dwell", type=pathlib.Path, default=pathlib.Path("target/release/dwell"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--brokers", nargs="*", default=list(RUNS))
    parser.add_argument("--lines", type=pathlib.Path, default=pathlib.Path("target/bench/peers.jsonl"))
    args = parser.parse_args()
    os.environ["DWELL_BIN"] = str(args.dwell.resolve())
    args.lines.parent.mkdir(parents=True, exist_ok=True)
    runs = [run for broker in args.brokers for run in RUNS[broker]]
    peers = [peer for peer, _, _ in runs]
    peers += [CONNECTORS.format(broker) for broker in args.brokers] if args.lab else []
    peers += [WITHOUT_AOF, *QUEUES] if args.queues else []
    rounds = [json.loads(line) for line in args.lines.read_text().splitlines()] if args.lines.exists() else []
    # A round of fewer peers is none of this table.
    rounds = [one for one in rounds if all(peer in one for peer in peers)]
    while len(rounds) < args.rounds:
        one = {peer: measured(args.harness, peer, workload, flags, args.jobs) for peer, workload, flags in runs}
        if args.lab:
            one |= {CONNECTORS.format(broker): measured_connectors(args.lab, broker, args.jobs) for broker in args.brokers}
        if args.queues:
            one |= measured_queues(args.harness, args.queues, args.jobs)
        rounds.append(one)
        with open(args.lines, "a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
    head = [
        "# Measured: beside bare relays and native delays",
        "",
        f"`make bench PEERS=DIR QUEUES=DIR`: {args.jobs} messages of 200 bytes, {len(rounds)} rounds in turns on one",
        "machine, which all processes share. Messages a second where nothing else is said; medians, and the",
        "range of the ratio of each round. A relay consumes, publishes, waits for the confirm and",
        "acknowledges, without a delay and without a reader on its target. The relay over Dwell's connectors",
        "has a reader there, and 1024 messages in flight where the bare relay over NATS has 8000.",
        "[Performance](../../explanation/performance.md) summarises this page.",
        "",
    ]
    args.out.write_text("\n".join(head + table(rounds, args.brokers)) + "\n", encoding="utf-8")
    print(args.out)


main()
