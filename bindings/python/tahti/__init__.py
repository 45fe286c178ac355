"""Messages to equipment, variables of real-time processes, frames and barriers, for Python.

    import tahti
    with tahti.Variables("control") as variables:
        print(variables["drive"].value)

    for turn in tahti.join("fast", "log"):
        print(turn.pulse)

    tahti.Barrier.open("ready").wait(within=10)

    with tahti.Client("operator") as client:
        print(client.ask("get/sr_mag_ps_b/current_adc"))

Python allocates and collects garbage at any time: join frames as a background activity only.

The library is `libtahti.so`: the file in the environment variable TAHTI_LIBRARY, else the one in the wheel, else the one that
the loader finds.
"""

import ctypes
import operator
from collections import namedtuple

from ._library import Error, Reading as _Reading, Turn as _Turn, failed as _failed, lib as _lib
from ._library import number as _number, seconds as _seconds, text as _text
from .messages import Answer, Asked, Client, Failed, Manager, Reply, Room

Reading = namedtuple("Reading", "value pulse at_ns writes safe alive")
Reading.__doc__ = "A variable: value, its pulse number, time of the write (ns), number of writes, safe value or not, writer alive or not."
Turn = namedtuple("Turn", "minor mode pulse due_ns end_ns")
Turn.__doc__ = "A call of an activity: minor frame, mode, pulse number, planned start and end of the minor frame (ns)."


class BrokenBarrier(Error):
    """A thread did not arrive at a barrier in time."""


class Variables:
    """The variables that a process exports under a name: a mapping from variable names to readings."""

    def __init__(self, name):
        self._handle = _lib().tahti_import_open(_text("the name", name))
        if not self._handle:
            raise _failed()

    def __getitem__(self, name):
        reading = _Reading(size=ctypes.sizeof(_Reading))
        if _lib().tahti_import_get(self._handle, _text("the name", name), ctypes.byref(reading)) != 0:
            raise KeyError(str(_failed()))
        value = {1: reading.as_double, 2: reading.as_int}.get(reading.type, bool(reading.as_int))
        return Reading(value, reading.pulse, reading.at_ns, reading.writes, bool(reading.safe), bool(reading.alive))

    def units(self):
        """Names and units of all variables."""
        units = {}
        name, unit = ctypes.create_string_buffer(65), ctypes.create_string_buffer(17)
        while _lib().tahti_import_name(self._handle, len(units), name, unit) == 0:
            units[name.value.decode()] = unit.value.decode()
        return units

    def __iter__(self):
        return iter(self.units())

    def close(self):
        if self._handle:
            _lib().tahti_import_close(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Member:
    """An activity of a frame, run by the thread that created the object. Iterate over its calls until the frame ends."""

    def __init__(self, frame, activity, within=10.0):
        limit = max(0, int(_seconds("within", within, (2**32 - 1) // 1000) * 1000))
        self._handle = _lib().tahti_frame_join(_text("the frame", frame), _text("the activity", activity), None, limit)
        if not self._handle:
            raise _failed()

    def __iter__(self):
        return self

    def __next__(self):
        """Ends the present call and waits for the next one, a Turn. Raises Error if the frame's process dies."""
        turn = _Turn(size=ctypes.sizeof(_Turn))
        result = _lib().tahti_frame_yield(self._handle, ctypes.byref(turn)) if self._handle else 0
        if result == 1:
            return Turn(turn.minor, turn.mode, turn.pulse, turn.due_ns, turn.end_ns)
        error = StopIteration() if result == 0 else _failed()
        self.leave()
        raise error

    def want_mode(self, mode):
        """Requests a mode by its name. It starts with the next major frame. Raises Error if the frame has no such mode."""
        if _lib().tahti_frame_mode(self._handle, _text("the mode", mode)) != 0:
            raise _failed()

    def leave(self):
        """Leaves the frame. The end of `with` and the deletion of the object do the same."""
        if getattr(self, "_handle", None):
            _lib().tahti_frame_leave(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    __del__ = leave


def join(frame, activity, within=10.0):
    """Joins a frame with the calling thread. Waits for the frame for at most `within` seconds. Returns a Member, to iterate over."""
    return Member(frame, activity, within)


def trigger(frame):
    """Triggers a frame whose time base is `software` or `counter`, once."""
    if _lib().tahti_frame_trigger(_text("the frame", frame)) != 0:
        raise _failed()


def event(name, value=0):
    """Reports an event of the calling thread, for `tahti explain` and `tahti trace`: a name of 1 to 15 bytes and a whole number."""
    value = operator.index(value)
    if not -2**63 <= value < 2**63:
        raise ValueError(f"value is {value}; expected a number of 64 bits")
    if _lib().tahti_event(_text("the name", name), value) != 0:
        raise _failed()


class Barrier:
    """A barrier for a team of threads of any processes: each thread waits until all have arrived."""

    def __init__(self, handle):
        if not handle:
            raise _failed()
        self._handle = handle

    @classmethod
    def create(cls, name, threads):
        """Creates a barrier, available under `name` until this process ends (None: for this process only)."""
        name = None if name is None else _text("the name", name)
        return cls(_lib().tahti_barrier_create(name, _number("threads", threads, 2**32 - 1)))

    @classmethod
    def open(cls, name):
        """Opens a barrier that another process created."""
        return cls(_lib().tahti_barrier_open(_text("the name", name)))

    def wait(self, within=None, spin=0.0):
        """Waits for all threads, at most for `within` seconds: spins for `spin` seconds, then sleeps. True for the last thread to arrive."""
        limit = -1 if within is None else max(0, int(_seconds("within", within) * 1e9))
        result = _lib().tahti_barrier_wait(self._handle, max(0, int(_seconds("spin", spin) * 1e9)), limit)
        if result < 0:
            raise BrokenBarrier("a thread did not arrive at the barrier in time; expected all of the team")
        return result == 1

    def __del__(self):
        if getattr(self, "_handle", None):
            _lib().tahti_barrier_close(self._handle)
            self._handle = None
