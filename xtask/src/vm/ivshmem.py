"""The other machine of QEMU's ivshmem-doorbell (docs/specs/ivshmem-spec.rst): shares memory with one guest. Whenever the guest
rings, it adds a million to the first word and rings back. Ends when it is killed; the argument is its socket."""

import array
import mmap
import os
import select
import socket
import struct
import sys

BYTES = 1 << 20
GUEST, SELF = 0, 1

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
memory = os.memfd_create("ivshmem")
os.ftruncate(memory, BYTES)
view = mmap.mmap(memory, BYTES)
rings = {GUEST: os.eventfd(0), SELF: os.eventfd(0)}

guest, _ = listener.accept()


def send(number, fd=None):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd is not None else []
    guest.sendmsg([struct.pack("<q", number)], rights)


send(0)
send(GUEST)
send(-1, memory)
for peer in (SELF, GUEST):
    send(peer, rings[peer])
while True:
    # QEMU has made the descriptor non-blocking, so wait before the read.
    select.select([rings[SELF]], [], [])
    os.eventfd_read(rings[SELF])
    (word,) = struct.unpack_from("<Q", view)
    struct.pack_into("<Q", view, 0, word + 1_000_000)
    os.eventfd_write(rings[GUEST], 1)
