"""`libtahti.so`: the file in the environment variable TAHTI_LIBRARY, else the one in this package, else the one of the loader."""

import ctypes
import operator
import os
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p


class Error(Exception):
    """An error that the library reports, with its text."""


def number(what, value, most=2**64 - 1):
    """Checks an integer for C: ctypes would drop upper bits without an error."""
    value = operator.index(value)
    if not 0 <= value <= most:
        raise ValueError(f"{what} is {value}; expected 0 to {most}")
    return value


def seconds(what, value, most=(2**63 - 1) // 10**9):
    """Checks a time in seconds for C, which counts ns in 64 bits (at most 292 years, or `most`)."""
    value = float(value)
    # NaN fails both comparisons and is refused, too.
    if not -most <= value <= most:
        raise ValueError(f"{what} is {value}; expected seconds, at most {most}")
    return value


def text(what, value):
    """Encodes a text for C, which ends a text at the first zero byte."""
    if "\0" in value:
        raise ValueError(f"{what} has a zero in it: {value!r}")
    return value.encode()


class Reading(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("type", c_uint32), ("as_double", c_double), ("as_int", c_int64), ("pulse", c_uint64),
                ("at_ns", c_uint64), ("writes", c_uint64), ("safe", c_uint32), ("alive", c_uint32)]


class Turn(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("minor", ctypes.c_uint16), ("mode", ctypes.c_uint16), ("pulse", c_uint64),
                ("due_ns", c_uint64), ("end_ns", c_uint64)]


class Sending(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("within_ns", c_int64), ("pulse", c_uint64), ("body", c_char_p),
                ("body_bytes", c_uint64), ("answer_bytes", c_uint64)]


class Reply(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("code", c_uint32), ("id", c_uint64), ("pulse", c_uint64), ("text", c_void_p),
                ("text_bytes", c_uint64), ("body", c_void_p), ("body_bytes", c_uint64), ("event", c_uint32),
                ("reserved", c_uint32)]


class Asked(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("band", c_uint32), ("id", c_uint64), ("verb", c_char_p), ("object", c_char_p),
                ("complement", c_char_p), ("body", c_void_p), ("body_bytes", c_uint64), ("deadline_ns", c_uint64),
                ("pulse", c_uint64), ("flags", c_uint32), ("user", c_uint32), ("process", c_uint32), ("host", c_uint32),
                ("answer_bytes", c_uint64)]


Handler = CFUNCTYPE(None, c_void_p, POINTER(Asked), c_void_p)

# Functions of tahti.h: type of the result, types of the arguments.
_FUNCTIONS = {
    "tahti_error": (c_char_p, []),
    "tahti_import_open": (c_void_p, [c_char_p]),
    "tahti_import_get": (c_int, [c_void_p, c_char_p, POINTER(Reading)]),
    "tahti_import_name": (c_int, [c_void_p, c_uint32, c_char_p, c_char_p]),
    "tahti_import_close": (None, [c_void_p]),
    "tahti_event": (c_int, [c_char_p, c_int64]),
    "tahti_frame_join": (c_void_p, [c_char_p, c_char_p, c_void_p, c_uint32]),
    "tahti_frame_yield": (c_int, [c_void_p, POINTER(Turn)]),
    "tahti_frame_mode": (c_int, [c_void_p, c_char_p]),
    "tahti_frame_leave": (None, [c_void_p]),
    "tahti_frame_trigger": (c_int, [c_char_p]),
    "tahti_barrier_create": (c_void_p, [c_char_p, c_uint32]),
    "tahti_barrier_open": (c_void_p, [c_char_p]),
    "tahti_barrier_wait": (c_int, [c_void_p, c_uint64, c_int64]),
    "tahti_barrier_close": (None, [c_void_p]),
    "tahti_code": (c_char_p, [c_uint32]),
    "tahti_client_connect_with_pool": (c_void_p, [c_char_p, c_char_p, c_uint32, c_uint64]),
    "tahti_client_send": (c_int64, [c_void_p, c_char_p, POINTER(Sending)]),
    "tahti_client_room": (c_void_p, [c_void_p, c_uint64]),
    "tahti_room_memory": (c_void_p, [c_void_p]),
    "tahti_client_send_room": (c_int64, [c_void_p, c_char_p, POINTER(Sending), c_void_p, c_uint64]),
    "tahti_room_free": (None, [c_void_p]),
    "tahti_client_next": (c_int, [c_void_p, POINTER(Reply), c_int64]),
    "tahti_client_wake": (None, [c_void_p]),
    "tahti_client_close": (None, [c_void_p]),
    "tahti_lines_write": (c_int64, [POINTER(c_char_p), c_uint32, c_char_p, c_uint64]),
    "tahti_line_read": (c_int, [c_char_p, c_uint64, c_uint32, POINTER(c_void_p), POINTER(c_uint64)]),
    "tahti_manager_connect_with_bodies": (c_void_p, [c_char_p, c_char_p, c_char_p, c_uint32, c_uint64]),
    "tahti_manager_serve": (c_int, [c_void_p, c_uint32, Handler, c_void_p, c_int64]),
    "tahti_answer": (c_int, [c_void_p, POINTER(Asked), c_uint32, c_char_p, c_char_p, c_uint64]),
    "tahti_answer_memory": (c_void_p, [c_void_p, POINTER(Asked), POINTER(c_uint64)]),
    "tahti_manager_answer": (c_int, [c_void_p, c_uint32, c_uint64, c_uint32, c_char_p, c_char_p, c_uint64]),
    "tahti_manager_wake": (None, [c_void_p, c_uint32]),
    "tahti_manager_close": (None, [c_void_p]),
}

_library = None


def library():
    """Path of the library."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtahti.so")
    return os.environ.get("TAHTI_LIBRARY") or (own if os.path.exists(own) else "libtahti.so")


def lib():
    """The library, loaded at the first use."""
    global _library
    if _library is None:
        loaded = ctypes.CDLL(library())
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        _library = loaded
    return _library


def failed():
    """The error of the last call of this thread."""
    return Error(lib().tahti_error().decode())
