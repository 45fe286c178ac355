"""Reads, writes and monitors channels over PVAccess with p4p. The arguments are names of records.

Servers are found by EPICS' environment variables. Prints one JSON object per record.
"""

import json
import queue
import sys

from p4p.client.thread import Context, Disconnected
from p4p.nt import NTScalar

PATIENCE = 60


def described(raw):
    value = raw["value"]
    if raw.getID().startswith("epics:nt/NTEnum"):
        value = value["choices"][value["index"]]
    return {
        "id": raw.getID(),
        "value": value if isinstance(value, (int, float, str, bool)) else list(value),
        "severity": raw["alarm.severity"],
        "seconds": raw["timeStamp.secondsPastEpoch"],
        "description": raw["display.description"],
        "units": raw["display.units"] if "display.units" in raw else "",
    }


def main(names):
    with Context("pva", nt=False) as raw, Context("pva") as plain:
        values = raw.get(names, timeout=PATIENCE)
        for name, value in zip(names, values):
            updates = queue.Queue()
            monitored = raw.monitor(name, updates.put, notify_disconnect=False)
            first = updates.get(timeout=PATIENCE)
            monitored.close()
            line = described(value)
            line["name"] = name
            line["monitored"] = described(first)["id"]
            print(json.dumps(line))
        puts(plain, raw)


def refused(put):
    try:
        put()
    except Exception as error:
        return str(error)
    return None


def until(updates, wanted):
    while True:
        update = updates.get(timeout=PATIENCE)
        if wanted(update):
            return update


def puts(plain, raw):
    """Writes a set point, and follows what it causes."""
    plain.put("SR:Beam:Shutter", "closed", timeout=PATIENCE)
    updates = queue.Queue()
    piped = raw.monitor("SR:QF1:Read", updates.put, request="field(value)record[pipeline=true,queueSize=4]")
    plain.put("SR:QF1:Set", 90.0, wait=True, timeout=PATIENCE)
    reached = until(updates, lambda update: abs(update["value"] - 90) < 0.1)
    piped.close()
    plain.put("SR:Beam:Shutter", 1, timeout=PATIENCE)
    locked = refused(lambda: plain.put("SR:QF1:Set", 100.0, timeout=PATIENCE))
    print(json.dumps({
        "name": "puts",
        "set": float(plain.get("SR:QF1:Set", timeout=PATIENCE)),
        "marked": sorted(reached.changedSet()),
        "locked": locked,
        "shutter": str(plain.get("SR:Beam:Shutter", timeout=PATIENCE)),
        "wrong": refused(lambda: plain.put("SR:Beam:Inject", "no such state", timeout=PATIENCE)),
    }))


main(sys.argv[1:])
