"""Compares groups of two IOCs with the same definitions over PVAccess, as p4p sees them.

The arguments are pairs of a TCP and a UDP port. Runs the same reads, writes and monitors with both, and prints a line per
difference. Then prints what only the first IOC is asked, as JSON.
"""

import json
import queue
import sys

PATIENCE = 60
# A monitor that expects nothing more waits for this time.
SILENCE = 1.0
GROUPS = ["T:table", "T:mixed", "T:chained", "T:image", "T:enum", "T:const", "T:loosely", "T:file"]


def text(value, name):
    if name.endswith(("secondsPastEpoch", "nanoseconds")):
        return "a time"
    if hasattr(value, "todict"):
        return repr(sorted((key, text(part, key)) for key, part in value.todict().items()))
    if isinstance(value, dict):
        return repr(sorted((key, text(part, key)) for key, part in value.items()))
    if isinstance(value, list):
        return repr([text(part, name) for part in value])
    return repr(value)


def fields(value):
    found = {}
    for name in sorted(value.changedSet()):
        part = value
        for word in name.split("."):
            part = part[word]
        found[name] = text(part, name)
    return found


class Updates:
    def __init__(self, side, name, request=None):
        self.queue = queue.Queue()
        self.monitor = side.monitor(name, self.queue.put, request=request, notify_disconnect=False)

    def next(self):
        return fields(self.queue.get(timeout=PATIENCE))

    def silent(self):
        try:
            return fields(self.queue.get(timeout=SILENCE))
        except queue.Empty:
            return "silent"


def put(side, name, values, request=None):
    try:
        side.put(name, values, request=request, timeout=PATIENCE, get=False)
        return "written"
    except Exception as error:
        return "refused" if str(error) else repr(error)


def steps(side):
    """Each step is a name and what p4p shows."""
    for name in GROUPS:
        value = side.get(name, timeout=PATIENCE)
        yield f"type of {name}", repr(value.type().aspy())
        yield f"get {name}", fields(value)
    yield "get not atomic", fields(side.get("T:mixed", request="record[atomic=false]", timeout=PATIENCE))
    yield "get a field", fields(side.get("T:mixed", request="field(x.value,text)", timeout=PATIENCE))

    table = Updates(side, "T:table")
    yield "first update of the table", table.next()
    yield "put the table", put(side, "T:table", {"value.A": [1.0, 2.0], "value.B": [3, 4]})
    yield "update of the table", table.next()
    yield "nothing more", table.silent()
    yield "put one column", put(side, "T:table", {"value.A": [5.0]})
    yield "update after one column", table.next()
    yield "put what is read only", put(side, "T:table", {"labels": ["x"]})
    yield "the record is processed", table.next()

    mixed = Updates(side, "T:mixed")
    yield "first update of mixed", mixed.next()
    yield "put a value with alarm", put(side, "T:x", {"value": 10.0})
    yield "value and alarm", mixed.next()
    yield "put without alarm change", put(side, "T:x", {"value": 11.0})
    yield "value only", mixed.next()
    yield "put a state", put(side, "T:mixed", {"state.value.index": 1})
    yield "a state and its number", [mixed.next(), mixed.next()]
    yield "put both texts", put(side, "T:mixed", {"text.value": "a", "plain.text": "b"})
    yield "property", put(side, "T:x.EGU", {"value": "m"})
    yield "get after texts", fields(side.get("T:mixed", request="field(text.value,plain.text)", timeout=PATIENCE))
    yield "put read only", put(side, "T:mixed", {"bare": 1})

    chain = Updates(side, "T:chained")
    yield "first update of the chain", chain.next()
    for nth in range(4):
        yield f"process {nth}", put(side, "T:count.PROC", {"value": 1})
        yield f"one update for the chain {nth}", chain.next()
    yield "chain is silent", chain.silent()

    image = Updates(side, "T:image")
    yield "first update of the image", image.next()
    yield "put a size", put(side, "T:image:width", {"value": 6})
    yield "no trigger", image.silent()
    yield "put the data", put(side, "T:image:data", {"value": [7, 8]})
    yield "update of the image", image.next()

    enum = Updates(side, "T:enum")
    yield "first update of the enumeration", enum.next()
    yield "put an index", put(side, "T:enum", {"value.index": 0})
    yield "index only", enum.next()

    constant = Updates(side, "T:const")
    yield "first update of constants", constant.next()

    filed = Updates(side, "T:file", request="field(set.value,ready)")
    yield "first update of selected fields", filed.next()
    yield "put in order", put(side, "T:file", {"ready": 0, "first": [9.0], "set.value": 2.5})
    yield "targets of the trigger", filed.next()
    yield "get the file", fields(side.get("T:file", request="field(set.value,ready,first)", timeout=PATIENCE))
    yield "loose", put(side, "T:loosely", {"a.value": 3.0, "b": 4})
    yield "get loose", fields(side.get("T:loosely", request="field(a.value,b)", timeout=PATIENCE))


def main(words):
    ours, theirs = context(*words[0:2]), context(*words[2:4])
    for (name, one), (_, other) in zip(steps(ours), steps(theirs)):
        if isinstance(one, dict) and isinstance(other, dict):
            for field in sorted(one.keys() | other.keys()):
                mine, yours = one.get(field, "not marked"), other.get(field, "not marked")
                if mine != yours:
                    print(f"{name}, {field}: {mine}, theirs {yours}")
        elif one != other:
            print(f"{name}: {one}, theirs {other}")
    for side, who in ((ours, "ours"), (theirs, "theirs")):
        before = float(side.get("T:loose", timeout=PATIENCE)["value"])
        result = put(side, "T:refused", {"before": before + 1, "after": 1.0})
        after = float(side.get("T:loose", timeout=PATIENCE)["value"])
        print(json.dumps({"who": who, "result": result, "half": after != before}))
    waited = put(ours, "T:table", {"value.A": [1.5]}, request="record[block=true]")
    print(json.dumps({"who": "block", "result": waited}))
    ours.close()
    theirs.close()


main(sys.argv[1:])
