"""What ESS's client reads, as JSON: tests/appliance_clients.rs says what it should be."""

import json
import sys
from datetime import datetime, timezone

from epicsarchiver.retrieval.client.archiver_retrieval import ArchiverRetrieval
from epicsarchiver.retrieval.client.processor import Processor, ProcessorName

client = ArchiverRetrieval("127.0.0.1", int(sys.argv[1]))
START = datetime(2026, 12, 31, 23, 50, tzinfo=timezone.utc)
END = datetime(2027, 1, 1, 0, 10, tzinfo=timezone.utc)


def read(name, processor=None):
    meta, events = client.get_events(name, START, END, processor)
    return {
        "years": sorted(meta),
        "type": [str(one.pv_type) for one in meta.values()],
        "headers": [{field.name: field.value for field in one.headers} for one in meta.values()],
        "rows": [[event.timestamp_ns, event.val if not isinstance(event.val, bytes) else list(event.val)] for event in events],
        "severities": [event.severity for event in events],
        "gaps": [event.field_values_dict["gap"] for event in events if "gap" in event.field_values_dict],
    }


processed = {}
for name in ProcessorName:
    size = None if name is ProcessorName.NCOUNT else 60
    processed[name.value] = read("RF:TEMP", Processor(name, size))["rows"]
print(json.dumps({
    "names": client.search(sys.argv[2], limit=100),
    "signals": {name: read(name) for name in sys.argv[3:]},
    "processed": processed,
}, default=list))
