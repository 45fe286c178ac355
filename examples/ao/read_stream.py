#!/usr/bin/env python3
"""Reads the newest image of a stream of the loop with NumPy alone: read_stream.py FOLDER/ao_slopes.im.shm

The layout is ImageStreamIO's, version 2.00: 384 bytes about the image, then the image. pyMilk and rtimv read the same file.
"""
import sys

import numpy

HEAD = numpy.dtype(
    {
        "names": ["version", "name", "axes", "size", "kind", "count", "frame", "write"],
        "formats": ["S32", "S80", "u1", "(3,)u4", "u1", "u8", "u8", "u1"],
        "offsets": [0, 32, 112, 116, 136, 264, 280, 288],
        "itemsize": 384,
    }
)
KINDS = {3: "u2", 9: "f4", 10: "f8"}


def read(path):
    """Name, number of the frame, and image (lines, columns), the newest that is whole."""
    file = numpy.memmap(path, mode="r")
    head = file[: HEAD.itemsize].view(HEAD)[0]
    if head["version"] != b"2.00":
        raise ValueError(f"{path}: version {head['version']!r}, expected b'2.00'")
    width, height = (int(size) for size in head["size"][:2])
    kind = numpy.dtype(KINDS[int(head["kind"])])
    data = file[HEAD.itemsize : HEAD.itemsize + width * height * kind.itemsize].view(kind)
    while True:
        before = int(head["count"])
        frame, image = int(head["frame"]), data.reshape(height, width).copy()
        if not head["write"] and int(head["count"]) == before:
            return head["name"].decode(), frame, image


if __name__ == "__main__":
    for path in sys.argv[1:]:
        name, frame, image = read(path)
        print(name, frame, image.dtype, *image.shape, f"{image.astype(float).sum():.9g}")
