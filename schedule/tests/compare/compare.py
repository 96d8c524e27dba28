#!/usr/bin/env python3
"""Writes the times that cronsim gives to expressions.txt around the changes of some zones' clocks.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    PYTHONTZPATH= venv/bin/python compare.py > cronsim.txt

A line: the expression, the zone, the time before the first (epoch s), and the times, each as the
seconds after the one before it; `900x3` is 900 three times. Separated by tabs and blanks.
"""

from datetime import datetime, timedelta, timezone
from itertools import groupby, islice
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "Antarctica/Troll",
    "Pacific/Chatham",
]
YEAR = 2027
COUNT = 16
# How long before a change the times begin: the first fits of rare expressions, the second of
# frequent ones.
LEADS = [timedelta(hours=50), timedelta(hours=2, minutes=10)]


def changes(zone):
    """The hours of the year at whose end the offset of the zone is another one."""
    at = datetime(YEAR, 1, 1, tzinfo=timezone.utc)
    found = []
    while at.year == YEAR:
        later = at + timedelta(minutes=30)
        if at.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            found.append(later)
        at = later
    return found


def main():
    folder = Path(__file__).parent
    lines = (folder / "expressions.txt").read_text().splitlines()
    expressions = [line for line in lines if line and not line.startswith("#")]
    for name in ZONES:
        zone = ZoneInfo(name)
        for change in changes(zone):
            for expression in expressions:
                # An expression of several times an hour reaches the change within its count.
                lead = LEADS[expression.split()[-4] == "*" or "/" in expression.split()[-4]]
                start = change - lead
                times = islice(CronSim(expression, start.astimezone(zone)), COUNT)
                seconds = [int(start.timestamp())] + [int(time.timestamp()) for time in times]
                steps = [later - before for before, later in zip(seconds, seconds[1:])]
                runs = [(step, len(list(run))) for step, run in groupby(steps)]
                shown = [f"{step}x{count}" if count > 1 else f"{step}" for step, count in runs]
                print(expression, name, seconds[0], " ".join(shown), sep="\t")


main()
