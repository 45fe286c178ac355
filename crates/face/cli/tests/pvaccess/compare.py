"""Compares channels of two IOCs with the same database over PVAccess, as p4p sees them.

The arguments are pairs of a TCP and a UDP port, then names of channels. Prints a line per difference.
"""

import sys

from p4p.nt import NTScalar


def fields(value, path=""):
    """Marked fields with their values, as text. NaN is equal to itself as text."""
    found = {}
    for name in sorted(value.changedSet()):
        part = value
        for word in name.split("."):
            part = part[word]
        if name.startswith("timeStamp"):
            part = "a time"
        found[name] = repr(part)
    return found


def main(words):
    ours, theirs = context(*words[0:2]), context(*words[2:4])
    for name in words[4:]:
        seen = []
        for side in (ours, theirs):
            try:
                value = side.get(name, timeout=30)
                seen.append((value.getID(), value.type().aspy(), fields(value)))
            except Exception as error:
                seen.append((type(error).__name__, str(error), {}))
        (id, shape, marked), (their_id, their_shape, their_marked) = seen
        if id != their_id:
            print(f"{name}: id {id} {shape if not marked else ''}, theirs {their_id}")
        elif shape != their_shape:
            print(f"{name}: type {shape}, theirs {their_shape}")
        for field in sorted(marked.keys() | their_marked.keys()):
            one, other = marked.get(field, "not marked"), their_marked.get(field, "not marked")
            if one != other:
                print(f"{name} {field}: {one}, theirs {other}")
    ours.close()
    theirs.close()


main(sys.argv[1:])
