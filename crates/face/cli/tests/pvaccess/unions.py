"""Serves a structure with unions, variants and arrays of them, and prints each put as JSON."""

import json
import sys

from p4p import Type, Value
from p4p.server import Server
from p4p.server.thread import SharedPV

MEMBERS = [("number", "d"), ("numbers", "ai"), ("text", "s")]
TYPE = Type(
    [
        ("value", ("U", None, MEMBERS)),
        ("any", "v"),
        ("several", ("aU", None, MEMBERS)),
        ("anys", "av"),
        ("points", ("aS", None, [("x", "i"), ("y", "i")])),
    ]
)


def plain(value):
    if isinstance(value, Value):
        return value.todict()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, (int, float, str)) or value is None else [plain(one) for one in value]


pv = SharedPV(initial=Value(TYPE, {"value": ("number", 1.5), "any": 7}))


@pv.put
def put(pv, operation):
    value = operation.value()
    print(json.dumps({name: plain(value[name]) for name in value.changedSet()}), flush=True)
    pv.post(value)
    operation.done()


with Server(providers=[{"U:all": pv}]):
    print("serves", flush=True)
    sys.stdin.read()
