"""Messages to equipment, and managers that answer them.

    with tahti.Client("operator") as client:
        print(client.ask("get/sr_mag_ps_b/current_adc"))
        futures = [client.send(f"put/sr_mag_ps_{n}/1.5A", within=0.5) for n in range(100)]
        replies = [future.result() for future in futures]

Futures are those of `concurrent.futures`. In a coroutine: `await asyncio.wrap_future(client.send(...))`.

    manager = tahti.Manager("magnets", ["sr_mag"])

    @manager.on("put", "sr_mag_ps_*")
    def put(asked):
        if not asked.complement.endswith("A"):
            raise tahti.Failed("RANGE", f"{asked.complement}, expected a current in A")
        return asked.complement

    manager.run()
"""

import collections
import ctypes
import fnmatch
import gc
import logging
import os
import threading
import time
import weakref
from concurrent.futures import Future

from . import _library
from ._library import Error, failed, lib, number as _number, seconds as _seconds, text as _text

BAND = 3
BANDS = 8
# Maximum wait in the library. It bounds the delay if a wake-up is lost, which happens while a client reconnects.
_LOOK_NS = 100_000_000
_BODY_BYTES_MAX = 16384
_log = logging.getLogger("tahti")


class Failed(Error):
    """A request that failed: `code` (docs/reference/messages.md lists the codes) and `text`, the reason."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Reply(collections.namedtuple("Reply", "code text body pulse")):
    """Result of a request: name of the code, value or reason of the failure, body, and the pulse to which the value belongs."""

    __slots__ = ()

    def value(self):
        """The text of a successful request; otherwise raises Failed."""
        if self.code != "OK":
            raise Failed(self.code, self.text)
        return self.text

    def lines(self):
        """The lines of the body, for `batch` and `list`."""
        return _lines(self.body)


class Asked(collections.namedtuple("Asked", "verb object complement body band pulse dry_run user process host left answer")):
    """A request for a manager's handler. `user` and `process` of the client come from the kernel. `left` is the time until the deadline
    in seconds, `answer` the maximum size of the answer's body in bytes."""

    _place = None

    def lines(self):
        """The lines of the body, for `batch`."""
        return _lines(self.body)

    def memory(self):
        """Memory for the body of the answer, to write it in place without a copy: a memoryview. The handler fills it and returns
        `Answer("", memory[:length])`. The memory is in the client's pool, and the client may write to it at any time. None if the
        client has no pool (`answer` is then 16384) or the manager accepts no large `bodies`. Valid only within the handler: if
        the handler keeps a view of it, the request is answered INTERNAL."""
        return self._place.memory() if self._place else None


class Answer(collections.namedtuple("Answer", "text body code", defaults=(b"", "OK"))):
    """An answer with a body. A handler may also return only a text."""

    __slots__ = ()


class _Place:
    """Memory of an answer that is written in place, valid while the handler runs."""

    def __init__(self, replies, asked):
        self._replies, self._asked, self._thread, self._array = replies, asked, threading.get_ident(), None

    def memory(self):
        if self._replies is None or threading.get_ident() != self._thread:
            raise Error("memory of an answer was requested outside its handler; expected a call within the handler, on its thread")
        if self._array is None:
            size = ctypes.c_uint64()
            at = lib().tahti_answer_memory(self._replies, self._asked, ctypes.byref(size))
            if not at:
                return None
            self._array = (ctypes.c_char * size.value).from_address(at)
        return memoryview(self._array).cast("B")

    def holds(self, body):
        """Whether a body starts at the start of this memory."""
        if self._array is None or body.readonly or not body.c_contiguous or not body.nbytes:
            return False
        return ctypes.addressof(ctypes.c_char.from_buffer(body)) == ctypes.addressof(self._array)

    def end(self):
        """Called after the handler has returned. True if a view of the memory still exists, which could access it after it is freed."""
        seen = weakref.ref(self._array) if self._array is not None else lambda: None
        self._replies = self._asked = self._array = None
        # If the array still exists, it may only be uncollected garbage: collect, then check again.
        return seen() is not None and (gc.collect(), seen())[1] is not None


def pack(lines):
    """Encodes lines as the body of a `batch` or of its reply."""
    texts = [_text("a line", line) for line in lines]
    room = ctypes.create_string_buffer(_BODY_BYTES_MAX)
    size = lib().tahti_lines_write((ctypes.c_char_p * len(texts))(*texts), len(texts), room, len(room))
    if size < 0:
        raise failed()
    return room.raw[:size]


def _lines(body):
    line, size, lines = ctypes.c_void_p(), ctypes.c_uint64(), []
    while True:
        found = lib().tahti_line_read(body, len(body), len(lines), ctypes.byref(line), ctypes.byref(size))
        if found < 0:
            raise failed()
        if found == 0:
            return lines
        lines.append(ctypes.string_at(line.value, size.value).decode())


def _server(server):
    return _text("the server's name", server or os.environ.get("TAHTI_MESSAGES", "main"))


def _codes():
    """The numbers of the codes by name."""
    codes = {}
    while word := lib().tahti_code(len(codes)):
        codes[word.decode()] = len(codes)
    return codes


class _Held:
    """A room of the library, freed when no view of its memory exists."""

    def __init__(self, handle):
        self.handle, self._free = handle, lib().tahti_room_free

    def __del__(self):
        self._free(self.handle)


class Room:
    """Memory in a client's pool for the body of one request, without a copy. Fill `data`, then pass the room as `body`. After that, do
    not write to views of `data`: the memory belongs to the request."""

    def __init__(self, client, size):
        size = _number("size", size)
        handle = lib().tahti_client_room(client, size)
        if not handle:
            raise failed()
        self._held, self._size = _Held(handle), size
        memory = (ctypes.c_char * size).from_address(lib().tahti_room_memory(handle))
        # Each view of the memory keeps the room alive.
        memory.held = self._held
        self.data = memoryview(memory).cast("B")

    def __len__(self):
        return self._size

    def _send(self, client, line, how):
        sent = lib().tahti_client_send_room(client, line, how, self._held.handle, self._size)
        if sent > 0:
            self.data = None
        return sent


class Client:
    """A connection to the message server `server` of this host, for any number of threads. It reconnects after a restart of the
    server. Requests that were outstanding then and neither read nor are `idempotent` are answered UNKNOWN. With a `pool` of that many
    bytes, bodies of requests and answers may exceed 16 KiB."""

    def __init__(self, name, server=None, band=BAND, pool=0):
        self._words = list(_codes())
        name_bytes, band = _text("the client's name", name), _number("band", band, BANDS - 1)
        self._handle = lib().tahti_client_connect_with_pool(_server(server), name_bytes, band, _number("pool", pool))
        if not self._handle:
            raise failed()
        self._lock = threading.Lock()
        self._closed = None
        self._outbox = collections.deque()
        self._outstanding = {}
        self._watchers = {}
        # The only thread that sends and receives. Other threads put their requests into the outbox and wake it.
        self._thread = threading.Thread(target=self._run, name=f"messages of {name}", daemon=True)
        self._thread.start()

    def send(self, line, within=5.0, body=b"", pulse=0, idempotent=False, dry_run=False, answer=0):
        """Sends a request without waiting and returns a future of its Reply. The deadline is `within` seconds from now. The body of the
        answer may have `answer` bytes (16 KiB without a pool). Invalid arguments raise an exception here or in the future."""
        return self._leave(line, within, body, pulse, idempotent, dry_run, answer, None)

    def room(self, size):
        """Allocates a Room of `size` bytes in the pool, for the `body` of a request. Raises Error if the pool has no space."""
        with self._lock:
            if self._closed:
                raise Error(self._closed)
            return Room(self._handle, size)

    def ask(self, line, **how):
        """Sends a request, waits, and returns the text of its reply. Raises Failed if it failed."""
        self._may_wait()
        return self.send(line, **how).result().value()

    def batch(self, target, lines, **how):
        """Sends many requests to objects of the manager of `target` as one message. Returns a Reply for each."""
        self._may_wait()
        reply = self.send(f"batch/{target}", body=pack(lines), **how).result()
        reply.value()
        parts = (line.partition("/") for line in reply.lines())
        return [Reply(code, _unescape(text), b"", reply.pulse) for code, _, text in parts]

    def watch(self, pattern, call, verbs="*", within=5.0):
        """Calls `call` with a line for each message to objects that match the pattern, on the thread of the client. Exceptions of `call`
        are logged. `call` must not wait for replies of this client, because they arrive on the same thread: use `send` and a
        callback of its future."""
        self._may_wait()
        verbs = "" if verbs == "*" else f"/{verbs}"
        return self._leave(f"watch/{pattern}{verbs}", within, b"", 0, False, False, 0, call).result().value()

    def _may_wait(self):
        if threading.current_thread() is self._thread:
            raise Error("replies arrive on this thread, which would wait for itself; use `send` and a callback of its future")

    def _leave(self, line, within, body, pulse, idempotent, dry_run, answer, call):
        # All checks happen here and raise in the caller's thread: the client's thread also serves the requests of
        # others.
        line, within = _text("the line", line), _seconds("within", within)
        body = body if isinstance(body, Room) else bytes(memoryview(body))
        flags = int(bool(idempotent)) + 2 * int(bool(dry_run))
        pulse, answer = _number("pulse", pulse), _number("answer", answer)
        future = Future()
        with self._lock:
            if self._closed:
                raise Error(self._closed)
            self._outbox.append((future, line, time.monotonic() + within, body, pulse, flags, answer, call))
            lib().tahti_client_wake(self._handle)
        return future

    def _run(self):
        why = "the client is closed"
        try:
            reply = _library.Reply(size=ctypes.sizeof(_library.Reply))
            while not self._closed:
                self._send()
                came = lib().tahti_client_next(self._handle, ctypes.byref(reply), _LOOK_NS)
                # Less than 0: the server is gone. Outstanding requests that may not be repeated have been answered
                # already.
                if came > 0:
                    self._take(reply)
        except BaseException as error:
            # A fault of this module. The futures must still be settled, so that no caller waits forever.
            why = f"the client's thread has ended: {type(error).__name__}: {error}"
            raise
        finally:
            self._end(why)

    def _send(self):
        while self._outbox:
            future, line, until, body, pulse, flags, answer, call = self._outbox[0]
            left = int((until - time.monotonic()) * 1e9)
            if future.cancelled():
                self._outbox.popleft()
                continue
            if left <= 0:
                self._outbox.popleft()
                if future.set_running_or_notify_cancel():
                    _settle(future, Reply("EXPIRED", "the client: not sent before its deadline", b"", pulse))
                continue
            how = _library.Sending(ctypes.sizeof(_library.Sending), flags, left, pulse, None, 0, answer)
            if isinstance(body, Room):
                sent = body._send(self._handle, line, ctypes.byref(how))
            else:
                how.body, how.body_bytes = body, len(body)
                sent = lib().tahti_client_send(self._handle, line, ctypes.byref(how))
            if sent == 0:
                # The queue or the pool is full. Replies must be received first.
                return
            self._outbox.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            if sent < 0:
                _settle(future, failed())
            else:
                self._outstanding[sent] = future
                if call:
                    self._watchers[sent] = call

    def _take(self, reply):
        text = ctypes.string_at(reply.text, reply.text_bytes).decode()
        if reply.event:
            if reply.id in self._watchers:
                try:
                    self._watchers[reply.id](text)
                except BaseException:  # noqa: B902 - after any exception, the next reply is handled
                    _log.exception("%r raised for %s", self._watchers[reply.id], text)
            return
        body = ctypes.string_at(reply.body, reply.body_bytes) if reply.body_bytes else b""
        if reply.code != 0:
            self._watchers.pop(reply.id, None)
        future = self._outstanding.pop(reply.id, None)
        if future:
            _settle(future, Reply(self._words[reply.code], text, body, reply.pulse))

    def _end(self, why):
        """Ends the thread, the last user of the handle."""
        with self._lock:
            self._closed = self._closed or why
            handle, self._handle = self._handle, None
        left = [future for future, *_ in self._outbox if future.set_running_or_notify_cancel()]
        left += self._outstanding.values()
        self._outbox.clear()
        self._outstanding.clear()
        lib().tahti_client_close(handle)
        for future in left:
            _settle(future, Error(f"{why}; no reply had arrived"))

    def close(self):
        """Ends the connection. Futures of requests without a reply raise Error. Waits for the thread, except in a callback."""
        with self._lock:
            if self._handle and not self._closed:
                self._closed = "the client is closed"
                lib().tahti_client_wake(self._handle)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _settle(future, outcome):
    """Sets the result of a running future. This calls the callbacks of its users; Future logs only their `Exception`s."""
    try:
        if isinstance(outcome, Error):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except BaseException:  # noqa: B902 - after any exception, the next reply is handled
        _log.exception("a callback of %r raised", future)


def _unescape(text):
    """Decodes the escapes of a complement."""
    first, *rest = text.split("%")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)


class Manager:
    """An equipment manager for the objects whose names equal or continue one of `serves`. Each band has a separate thread, which runs
    one handler at a time. A handler that must wait returns a `concurrent.futures.Future`. Bodies of up to `bodies` bytes are
    accepted, at least 16 KiB.

    Python allocates and collects garbage at any time: for real-time equipment use `tahti em`, or a manager in Rust or C."""

    def __init__(self, name, serves, server=None, bands=range(BANDS), bodies=0):
        self._bodies = _number("bodies", bodies)
        self._name, self._serves = name, list(serves)
        self._bands = sorted({_number("a band", band, BANDS - 1) for band in bands})
        self._server = _server(server)
        self._codes = _codes()
        self._handlers = []
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._handle = None
        # Number of connections so far. An answer to a request of an earlier connection is dropped.
        self._turn = 0
        self._kept = {band: collections.deque() for band in self._bands}
        self.on("ping")(lambda asked: name)
        self.on("list")(lambda asked: Answer("", pack(self._serves)))

    def on(self, verb, objects="*"):
        """A decorator: the function answers requests with this verb to objects that match this pattern. Of several matching functions, the
        last one that was added is called. It returns a text, a number, an Answer, a Future of one of these, or raises Failed."""

        def decorate(function):
            self._handlers.insert(0, (verb, objects, function))
            return function

        return decorate

    def start(self):
        """Registers, and serves on separate threads until `close`."""
        self._connect()
        self._thread = threading.Thread(target=self._run, name=f"manager {self._name}", daemon=True)
        self._thread.start()
        return self

    def run(self):
        """Registers, and serves until another thread calls `close`."""
        self._connect()
        self._run()

    def close(self):
        """Ends the manager. The message server answers open requests with UNKNOWN."""
        self._closed.set()
        self._wake(self._bands)
        if getattr(self, "_thread", None) is not None:
            self._thread.join()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def _connect(self):
        bands = sum(1 << band for band in self._bands)
        serves, name = _text("what is served", " ".join(self._serves)), _text("the manager's name", self._name)
        handle = lib().tahti_manager_connect_with_bodies(self._server, name, serves, bands, self._bodies)
        if not handle:
            raise failed()
        self._handle = handle
        self._turn += 1

    def _run(self):
        while True:
            threads = [threading.Thread(target=self._band, args=(band,), daemon=True) for band in self._bands]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with self._lock:
                lib().tahti_manager_close(self._handle)
                self._handle = None
            while not self._handle:
                if self._closed.wait(0.1):
                    return
                try:
                    self._connect()
                except Error:
                    # The server is still down.
                    continue

    def _wake(self, bands):
        with self._lock:
            for band in bands:
                if self._handle:
                    lib().tahti_manager_wake(self._handle, band)

    def _band(self, band):
        handler = _library.Handler(lambda _, asked, replies: self._handle_one(asked, replies))
        handle, turn, kept = self._handle, self._turn, self._kept[band]
        while not self._closed.is_set():
            while kept:
                of, request, outcome = kept.popleft()
                if of == turn:
                    lib().tahti_manager_answer(handle, band, request, *self._answer(outcome))
            if lib().tahti_manager_serve(handle, band, handler, None, _LOOK_NS) < 0:
                return

    def _handle_one(self, asked, replies):
        of, place = asked.contents, _Place(replies, asked)
        try:
            outcome = self._outcome(of, place)
        except BaseException as error:  # noqa: B902 - after any exception, the request is answered
            # The traceback's frames would keep the request's memory alive.
            outcome = error.with_traceback(None)
        if isinstance(outcome, Future):
            place.end()
            band, request, turn = of.band, of.id, self._turn
            outcome.add_done_callback(lambda future: self._later(turn, band, request, future))
            return
        answer = self._answer(outcome, place)
        outcome = None
        if place.end():
            why = f"the handler of {of.verb.decode()} {of.object.decode()} keeps the memory of its answer, which belongs to the client"
            _log.error(why)
            answer = self._codes["INTERNAL"], why.encode(), b"", 0
        lib().tahti_answer(replies, asked, *answer)

    def _later(self, turn, band, request, future):
        try:
            outcome = future.result()
        except BaseException as error:  # noqa: B902 - as in `_handle_one`
            outcome = error
        self._kept[band].append((turn, request, outcome))
        self._wake([band])

    def _outcome(self, of, place):
        verb, name = of.verb.decode(), of.object.decode()
        function = next((f for v, o, f in self._handlers if v == verb and fnmatch.fnmatchcase(name, o)), None)
        if function is None:
            known = sorted({v for v, o, _ in self._handlers if fnmatch.fnmatchcase(name, o)})
            raise Failed("NO_VERB", f"{name} has no verb {verb}; it has {', '.join(known)}")
        body = ctypes.string_at(of.body, of.body_bytes) if of.body_bytes else b""
        left = of.deadline_ns / 1e9 - time.monotonic()
        asked = Asked(verb, name, of.complement.decode(), body, of.band, of.pulse, bool(of.flags & 2), of.user, of.process, of.host,
                      left, of.answer_bytes)
        asked._place = place
        return function(asked)

    def _answer(self, outcome, place=None):
        """Code, complement, body and its length for the library. `outcome` is the result of a handler, of any type."""
        try:
            if isinstance(outcome, Failed) and outcome.code in self._codes:
                outcome = Answer(outcome.text, b"", outcome.code)
            elif isinstance(outcome, BaseException):
                outcome = Answer(f"{type(outcome).__name__}: {outcome}", b"", "INTERNAL")
            elif not isinstance(outcome, Answer):
                outcome = Answer("" if outcome is None else str(outcome))
            code, text, body = self._codes[outcome.code], _text("the answer", outcome.text), memoryview(outcome.body)
            if place and place.holds(body):
                return code, text, ctypes.c_char_p(ctypes.addressof(ctypes.c_char.from_buffer(body))), body.nbytes
            body = bytes(body)
            return code, text, body, len(body)
        except BaseException as error:  # noqa: B902 - as in `_handle_one`
            why = f"the handler's answer cannot be sent: {type(error).__name__}"
            return self._codes["INTERNAL"], why.encode(), b"", 0
