"""What pyarchappl and Diamond's aapy read, as JSON: tests/appliance_clients.rs says what it should be."""

import json
import sys
from datetime import datetime, timezone

from aa.js import JsonFetcher
from aa.pb import PbFetcher
from archappl.data import ArchiverDataClient

PORT = int(sys.argv[1])
START, END = "2026-12-31T23:50:00.000Z", "2027-01-01T00:10:00.000Z"
client = ArchiverDataClient(f"http://127.0.0.1:{PORT}")


def frame(name, kind):
    client.format = kind
    data = client.get_data(name, from_time=START, to_time=END, tz="UTC")
    return [[int(at.timestamp()), float(value)] for at, value in zip(data.index, data["val"])]


def values(fetcher, name):
    found = fetcher("127.0.0.1", PORT).get_values(name, datetime.fromisoformat(START), datetime.fromisoformat(END))
    return [[float(at), float(value[0])] for at, value in zip(found.timestamps, found.values)]


client.format = "raw"
print(json.dumps({
    "pyarchappl": {kind: frame("RF:TEMP", kind) for kind in ["raw", "json"]},
    "at": client.get_data_at_time(["RF:TEMP", "NONE"], "2026-12-31T23:50:10.000Z"),
    "aapy": {"raw": values(PbFetcher, "RF:TEMP"), "json": values(JsonFetcher, "RF:TEMP")},
}))
