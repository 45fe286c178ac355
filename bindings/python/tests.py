"""The package as pip installed it, with the C examples `meet` and `magnet` and the binary `tahti` (the arguments)."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import tahti

MEET, MAGNET, TAHTI = sys.argv[1:4]
del sys.argv[1:4]
# Timeout, in seconds, after which a test fails.
PATIENCE = 60


class Team(unittest.TestCase):
    def test_a_barrier_is_shared_with_a_c_program_and_its_variable_is_read(self):
        serve = subprocess.Popen([MEET, "serve", "0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(serve.stdout.close)
        self.addCleanup(serve.kill)
        self.assertEqual(serve.stdout.readline(), "serving\n")
        with tahti.Variables("meet-serve") as variables:
            self.assertEqual((list(variables), variables["rounds"].value), (["rounds"], 0))
            self.assertTrue(variables["rounds"].alive)
            with self.assertRaises(KeyError):
                variables["absent"]
            barrier = tahti.Barrier.open("meet")
            barrier.wait(within=30)
            barrier.wait(within=30)
            self.assertIn("token 0", serve.stdout.read())
            self.assertEqual(serve.wait(30), 0)
            self.assertFalse(variables["rounds"].alive)

    def test_a_barrier_breaks_if_the_other_threads_do_not_arrive(self):
        barrier = tahti.Barrier.create(None, 2)
        for _ in range(2):
            with self.assertRaises(tahti.BrokenBarrier):
                barrier.wait(within=0.01)
        self.assertTrue(tahti.Barrier.create(None, 1).wait())

    def test_absent_barriers_and_variables_are_refused_with_a_reason(self):
        for wrong in (lambda: tahti.Barrier.open("absent"), lambda: tahti.Variables("absent"),
                      lambda: tahti.Barrier.create(None, 0)):
            with self.assertRaisesRegex(tahti.Error, "expected"):
                wrong()

    def test_an_event_is_reported_and_one_that_does_not_fit_is_refused(self):
        tahti.event("exposure", -3)
        tahti.event("exposure")
        with self.assertRaisesRegex(tahti.Error, "expected 1 to 15 bytes"):
            tahti.event("a name that is too long")
        with self.assertRaisesRegex(ValueError, "expected a number of 64 bits"):
            tahti.event("exposure", 2**63)


class Frames(unittest.TestCase):
    def setUp(self):
        """A frame of one minor in two modes, whose one activity is the test."""
        self.plant = f"python-{os.getpid()}"
        background = {"underrunnable": False, "overrunnable": False, "continuable": False, "background": True}
        activity = {"name": "log", "budget": None, "queue": [[0, background]], "recovery": "none", "tolerate": None}
        modes = [{"name": mode, "activities": ["log"]} for mode in ("normal", "tuning")]
        spec = {"name": "fast", "base": "timer", "minors": ["5ms"], "activities": [activity], "modes": modes, "reserve": "0s"}
        config = {"spec": spec, "cpu": None, "priority": 50, "join_within": "60s", "followers": []}
        environment = dict(os.environ, TAHTI_PLANT=self.plant, TAHTI_FRAME=json.dumps(config))
        self.frame = subprocess.Popen([TAHTI, "frames", "run"], env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.frame.stdout.close)
        self.addCleanup(self.frame.wait)
        self.addCleanup(self.frame.kill)

    def test_an_activity_changes_the_mode_and_its_iteration_ends_with_the_frame(self):
        with tahti.join(f"{self.plant}/fast", "log", within=PATIENCE) as member:
            self.assertEqual(next(member).mode, 0)
            with self.assertRaisesRegex(tahti.Error, "no mode \"cruise\"; it has: normal, tuning"):
                member.want_mode("cruise")
            member.want_mode("tuning")
            pulses = [turn.pulse for turn in itertools.islice((turn for turn in member if turn.mode == 1), 3)]
            self.assertEqual(pulses, sorted(set(pulses)))
            self.frame.terminate()
            for _ in member:
                pass
            with self.assertRaises(StopIteration):
                next(member)

    def test_a_killed_frame_is_an_error_and_an_absent_frame_is_refused(self):
        member = tahti.join(f"{self.plant}/fast", "log", within=PATIENCE)
        next(member)
        self.frame.kill()
        with self.assertRaisesRegex(tahti.Error, "has died"):
            for _ in member:
                pass
        with self.assertRaisesRegex(tahti.Error, "no frame"):
            tahti.join(f"{self.plant}/absent", "log", within=0.01)


class Messages(unittest.TestCase):
    def setUp(self):
        self.name = os.environ["TAHTI_MESSAGES"] = f"python-{os.getpid()}"
        self.serve()

    def serve(self):
        self.server = subprocess.Popen([TAHTI, "msg", "serve", "--name", self.name], stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stderr.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        self.assertIn("serving as", self.server.stderr.readline())

    def manager(self):
        manager = tahti.Manager("magnets", ["sr_mag", "sr_other"])
        values = {}

        @manager.on("put", "sr_mag_*")
        def put(asked):
            if not asked.complement.endswith("A"):
                raise tahti.Failed("RANGE", f"{asked.complement}, expected a current in A")
            if not asked.dry_run:
                values[asked.object] = asked.complement
            return asked.complement

        @manager.on("get", "sr_mag_*")
        def get(asked):
            return values.get(asked.object)

        @manager.on("call", "sr_mag_*")
        def call(asked):
            return {"who": lambda: f"{asked.user} {asked.process} {asked.host}", "fault": lambda: 1 / 0,
                    "body": lambda: tahti.Answer("", asked.body[::-1])}[asked.complement]()

        @manager.on("batch", "sr_mag")
        def batch(asked):
            return tahti.Answer("", tahti.messages.pack(f"OK/{line.rpartition('/')[2]}" for line in asked.lines()))

        self.addCleanup(manager.close)
        return manager

    def client(self, name="operator", **how):
        client = tahti.Client(name, **how)
        self.addCleanup(client.close)
        return client

    def test_a_value_that_was_put_is_returned_by_get_and_a_failure_is_an_exception(self):
        self.manager().start()
        client = self.client()
        self.assertEqual(client.ask("put/sr_mag_1/1.5A"), "1.5A")
        self.assertEqual(client.ask("put/sr_mag_1/2A", dry_run=True), "2A")
        self.assertEqual(client.ask("get/sr_mag_1"), "1.5A")
        self.assertEqual(client.ask("put/sr_mag_2/a%2FbA"), "a/bA")
        self.assertEqual(client.ask("call/sr_mag_1/who"), f"{os.getuid()} {os.getpid()} 0")
        self.assertEqual(client.ask("ping/sr_mag"), "magnets")
        self.assertEqual(client.send("list/sr_mag_*").result().lines(), ["sr_mag", "sr_other"])
        for line, code, why in [("put/sr_mag_1/2V", "RANGE", "2V, expected"), ("get/sr_other", "NO_VERB", "it knows list, ping"),
                                ("call/sr_mag_1/fault", "INTERNAL", "division by zero"), ("get/li_x", "NO_OBJECT", "no manager serves")]:
            with self.assertRaisesRegex(tahti.Failed, why) as caught:
                client.ask(line)
            self.assertEqual(caught.exception.code, code)
        with self.assertRaisesRegex(tahti.Error, "did you mean"):
            client.ask("gte/sr_mag_1")

    def test_each_future_of_many_threads_gets_its_own_reply(self):
        self.manager().start()
        client = self.client()

        def many(part):
            futures = [client.send(f"put/sr_mag_{part}/{n}A") for n in range(100)]
            return [future.result(PATIENCE).value() for future in futures] == [f"{n}A" for n in range(100)]

        with ThreadPoolExecutor(2) as threads:
            self.assertEqual(list(threads.map(many, range(2))), [True, True])

        async def coroutine():
            return await asyncio.gather(*(asyncio.wrap_future(client.send("get/sr_mag_0")) for _ in range(10)))

        self.assertEqual({reply.text for reply in asyncio.run(coroutine())}, {"99A"})

    def test_bodies_batches_and_events_pass(self):
        self.manager().start()
        client = self.client()
        body = bytes(range(256)) * 32
        self.assertEqual(client.send("call/sr_mag_1/body", body=body).result().body, body[::-1])
        replies = client.batch("sr_mag", ["put/sr_mag_1/3A", "put/sr_mag_2/4A"])
        self.assertEqual([(reply.code, reply.text) for reply in replies], [("OK", "3A"), ("OK", "4A")])
        seen, there = [], threading.Event()
        client.watch("sr_mag_*", lambda line: (seen.append(line), there.set()), verbs="put")
        client.ask("put/sr_mag_9/5A")
        self.assertTrue(there.wait(PATIENCE))
        self.assertIn("put/sr_mag_9/5A -> OK/5A", seen[0])

    def test_bodies_above_16_kib_pass_through_a_pool_at_once_and_later(self):
        camera = tahti.Manager("camera", ["camera"], bodies=1 << 20)
        image = bytes(range(251)) * 4000
        camera.on("put", "camera")(lambda asked: tahti.Answer(str(asked.answer), asked.body[::-1]))
        camera.on("get", "camera")(lambda asked: tahti.Answer("", image))
        with ThreadPoolExecutor(1) as pool:
            camera.on("call", "camera")(lambda asked: pool.submit(lambda: tahti.Answer("", asked.body[1:])))
            camera.start()
            self.addCleanup(camera.close)
            client = self.client(pool=3 << 20)
            reply = client.send("put/camera", body=image, within=PATIENCE).result(PATIENCE)
            self.assertEqual((reply.text, reply.body), ("1004032", image[::-1]))
            # The eight bodies exceed the pool, so some requests wait until it has room.
            futures = [client.send("call/camera", body=image[n:], within=PATIENCE) for n in range(8)]
            self.assertEqual([future.result(PATIENCE).body for future in futures], [image[n + 1:] for n in range(8)])
            self.assertEqual(client.send("get/camera", answer=len(image), within=PATIENCE).result(PATIENCE).body, image)
            # Errors: an answer without room, a body larger than the manager's limit, a client without a pool, a body
            # larger than the pool.
            self.assertEqual(client.send("get/camera", within=PATIENCE).result(PATIENCE).code, "UNKNOWN")
            late = client.send("put/camera", body=bytes(1 << 20) + b"x", within=PATIENCE).result(PATIENCE)
            self.assertEqual((late.code, late.text[:37]), ("MALFORMED", "the body is larger than this manager "))
            for other, body in [(self.client("plain"), image), (client, bytes(4 << 20))]:
                with self.assertRaisesRegex(tahti.Error, "the pool of this client has no room"):
                    other.send("put/camera", body=body).result(PATIENCE)
            # Rooms of requests that have timed out are returned to the pool.
            camera.on("call", "camera")(lambda asked: tahti.messages.Future())
            codes = []
            while codes.count("TIMEOUT") < 4:
                codes.append(client.send("call/camera", body=image, within=0.2).result(PATIENCE).code)
            # On a busy machine a request may expire before it is sent.
            self.assertLessEqual(set(codes), {"TIMEOUT", "EXPIRED"})
            self.assertEqual(client.send("get/camera", answer=len(image), within=PATIENCE).result(PATIENCE).body, image)

    def test_a_body_is_written_in_place_and_its_memory_outlives_the_client(self):
        camera = tahti.Manager("camera", ["camera"], bodies=1 << 20)
        camera.on("put", "camera")(lambda asked: tahti.Answer("", asked.body[::-1]))
        camera.start()
        self.addCleanup(camera.close)
        client = self.client(pool=1 << 20)
        for number in range(20):
            room = client.room(600_000)
            data = room.data
            data[:3], data[-1] = b"abc", number
            with self.assertRaisesRegex(tahti.Error, "no room of 600000 bytes"):
                client.room(600_000)
            reply = client.send("put/camera", body=room, within=PATIENCE).result(PATIENCE)
            self.assertEqual((reply.code, len(reply.body), reply.body[0], reply.body[-3:]), ("OK", 600_000, number, b"cba"))
            with self.assertRaisesRegex(tahti.Error, "the room has been sent"):
                client.send("put/camera", body=room, within=PATIENCE).result(PATIENCE)
        with self.assertRaisesRegex(tahti.Error, "has no pool"):
            self.client("plain").room(1)
        # Rooms that are dropped without being sent are returned to the pool.
        for _ in range(3):
            data = client.room(600_000).data
            data = None
        kept = client.room(600_000).data
        client.close()
        kept[0] = 7
        self.assertEqual(kept[0], 7)

    def test_a_large_answer_is_written_in_place_and_no_handler_keeps_its_memory(self):
        camera, size, seen, kept = tahti.Manager("camera", ["camera"], bodies=1 << 20), 900_000, [], []

        def fill(memory, number):
            for at in range(0, size, 100_000):
                memory[at:at + 100_000] = bytes([number + at // 100_000]) * 100_000

        @camera.on("get", "camera")
        def get(asked):
            seen.append(asked)
            memory = asked.memory()
            if memory is None:
                return f"no room, {asked.answer}"
            fill(memory, int(asked.complement))
            # A second call returns the same memory, with the filled contents.
            return tahti.Answer(str(len(memory)), asked.memory()[:size])

        @camera.on("put", "camera")
        def put(asked):
            memory = asked.memory()
            fill(memory, 7)
            # A part that does not start at the beginning is copied.
            return tahti.Answer("", memory[1:size]) if asked.complement == "part" else tahti.Answer("", memory[:0])

        @camera.on("call", "camera")
        def call(asked):
            memory = asked.memory()
            if asked.complement == "keep":
                kept.append(memory[5:])
            if asked.complement == "later":
                return pool.submit(asked.memory)
            if asked.complement == "raise":
                raise tahti.Failed("RANGE", "no such image")
            return tahti.Answer("", memory[:1])

        pool = ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        camera.start()
        self.addCleanup(camera.close)
        client = self.client(pool=3 << 20)

        def ask(line, client=client, answer=size):
            return client.send(line, answer=answer, within=PATIENCE).result(PATIENCE)

        expected = [b"".join(bytes([number + n]) * 100_000 for n in range(9)) for number in range(20)]
        holds, held = tahti.messages._Place.holds, []
        with patch.object(tahti.messages._Place, "holds", lambda *what: held.append(holds(*what)) or held[-1]):
            for number in range(20):
                reply = ask(f"get/camera/{number}")
                self.assertEqual((reply.code, reply.body == expected[number]), ("OK", True), reply.text)
                self.assertGreaterEqual(int(reply.text), size)
        self.assertEqual(held, [True] * 20, "none is copied")
        self.assertEqual(ask("get/camera/0", answer=0).text, "no room, 16384")
        self.assertEqual(ask("get/camera/0", self.client("plain"), 0).text, "no room, 16384")
        self.assertEqual(ask("put/camera/part").body, expected[7][1:])
        self.assertEqual(ask("put/camera/none").body, b"")
        self.assertEqual((ask("call/camera/raise").code, len(ask("call/camera/one").body)), ("RANGE", 1))
        # A handler that keeps the memory causes a logged error, and the next request is served.
        with self.assertLogs("tahti", "ERROR") as logs:
            self.assertEqual(ask("call/camera/keep").code, "INTERNAL")
        self.assertIn("the handler of call camera keeps the memory of its answer", logs.output[0])
        kept.clear()
        late = ask("call/camera/later")
        self.assertEqual((late.code, late.text[:52]), ("INTERNAL", "Error: memory of an answer was requested outside its"))
        with self.assertRaisesRegex(tahti.Error, "outside its handler"):
            seen[0].memory()
        self.assertEqual(ask("get/camera/3").body, expected[3])

    def test_an_invalid_request_is_an_exception_and_the_next_one_is_answered(self):
        manager = self.manager().start()
        client = self.client(pool=1 << 20)
        ping = "ping/server"
        wrong = [dict(within=float("nan")), dict(within=float("inf")), dict(within=float("-inf")), dict(within=1e10),
                 dict(pulse=-1), dict(pulse=1 << 70), dict(answer=-1), dict(answer=1 << 64)]
        for how in wrong:
            (word, value), = how.items()
            with self.assertRaisesRegex(ValueError, f"{word} is {value}; expected"):
                client.send(ping, **how)
        for how in [dict(pulse=1.5), dict(body=5), dict(body="text"), dict(within=None)]:
            with self.assertRaises((TypeError, ValueError)):
                client.send(ping, **how)
        with self.assertRaisesRegex(ValueError, "the line has a zero"):
            client.send(ping + "\0/x")
        with self.assertRaisesRegex(ValueError, "size is -1"):
            client.room(-1)
        for how in [dict(band=-1), dict(band=8), dict(pool=-1)]:
            with self.assertRaisesRegex(ValueError, "expected 0 to"):
                tahti.Client("wrong", **how)
        for within in (0, -1):
            self.assertEqual(client.send(ping, within=within).result(PATIENCE).code, "EXPIRED")
        manager.on("call", "sr_mag_pulse")(lambda asked: asked.pulse)
        reply = client.send("call/sr_mag_pulse", pulse=2**64 - 1, within=1e9).result(PATIENCE)
        self.assertEqual((reply.code, reply.text), ("OK", str(2**64 - 1)))

    def test_exceptions_of_callbacks_are_logged_and_the_next_reply_is_handled(self):
        self.manager().start()
        client = self.client()
        seen, there = [], threading.Event()

        def watcher(line):
            seen.append(line)
            there.set()
            raise (SystemExit if len(seen) > 1 else ValueError)("in a callback")

        client.watch("sr_mag_*", watcher, verbs="put")
        with self.assertLogs("tahti") as logged:
            for _ in range(3):
                client.ask("put/sr_mag_1/1A", within=PATIENCE)
                self.assertTrue(there.wait(PATIENCE))
                there.clear()
            # This reply arrives on the same thread, after the last event.
            client.ask("ping/server", within=PATIENCE)
            future = client.send("get/sr_mag_1", within=PATIENCE)
            future.add_done_callback(lambda _: sys.exit("in a callback"))
            self.assertEqual(future.result(PATIENCE).code, "OK")
            self.assertEqual(client.ask("ping/server", within=PATIENCE), self.name)
        self.assertEqual(len(seen), 3)
        self.assertIn("put/sr_mag_1/1A -> OK/1A", logged.output[0])

    def test_a_callback_may_send_without_waiting_and_may_close_its_client(self):
        self.manager().start()
        client = self.client()
        said, there = [], threading.Event()

        def watcher(line):
            with self.assertRaisesRegex(tahti.Error, "would wait for itself"):
                client.ask("get/sr_mag_1")
            client.send("get/sr_mag_1", within=PATIENCE).add_done_callback(got)

        def got(future):
            said.append(future.result().text)
            client.close()
            there.set()

        client.watch("sr_mag_1", watcher, verbs="put")
        client.ask("put/sr_mag_1/7A", within=PATIENCE)
        self.assertTrue(there.wait(PATIENCE))
        client.close()
        self.assertEqual(said, ["7A"])
        with self.assertRaisesRegex(tahti.Error, "closed"):
            client.send("get/sr_mag_1")

    def test_a_fault_of_the_clients_thread_ends_all_waits(self):
        manager = self.manager()
        manager.on("call", "sr_mag_never")(lambda asked: tahti.messages.Future())
        manager.start()
        client = self.client()
        waits = client.send("call/sr_mag_never", within=PATIENCE)
        threading.excepthook, before = lambda args: None, threading.excepthook
        self.addCleanup(setattr, threading, "excepthook", before)
        client._take = lambda reply: 1 / 0
        fault = client.send("ping/server", within=PATIENCE)
        for future in (waits, fault):
            with self.assertRaisesRegex(tahti.Error, "thread has ended: ZeroDivisionError"):
                future.result(PATIENCE)
        with self.assertRaisesRegex(tahti.Error, "thread has ended"):
            client.ask("ping/server")

    def test_an_invalid_answer_is_a_fault_and_the_band_continues(self):
        class Strange:
            def __str__(self):
                raise ValueError("no text")

        strange = {"object": Strange(), "zero": "a\0b", "surrogate": "\ud800", "code": tahti.Answer("x", b"", "FINE"),
                   "body": tahti.Answer("x", 5), "text": tahti.Answer(5)}
        manager = self.manager()
        with ThreadPoolExecutor(1) as pool:
            manager.on("call", "sr_mag_1")(lambda asked: strange[asked.complement])
            manager.on("call", "sr_mag_2")(lambda asked: pool.submit(lambda: strange[asked.complement]))
            manager.on("call", "sr_mag_3")(lambda asked: pool.submit(sys.exit))
            manager.start()
            client = self.client()
            lines = [f"call/sr_mag_{n}/{word}" for n in (1, 2) for word in strange] + ["call/sr_mag_3"]
            codes = {line: client.send(line, within=PATIENCE).result(PATIENCE).code for line in lines}
            self.assertEqual(codes, dict.fromkeys(lines, "INTERNAL"))
            self.assertEqual(client.ask("put/sr_mag_1/1A", within=PATIENCE), "1A")

    def test_an_answer_may_be_late_and_a_missing_one_is_a_timeout(self):
        manager = self.manager()
        with ThreadPoolExecutor(1) as pool:
            go = threading.Event()
            manager.on("call", "sr_mag_slow")(lambda asked: pool.submit(lambda: go.wait(PATIENCE) and "late"))
            manager.start()
            client = self.client()
            slow = client.send("call/sr_mag_slow", within=PATIENCE)
            hung = client.send("call/sr_mag_slow", within=0.05).result(PATIENCE)
            self.assertEqual(hung.code, "TIMEOUT", hung)
            self.assertFalse(slow.done())
            go.set()
            self.assertEqual(slow.result(PATIENCE).value(), "late")

    def test_server_and_manager_restart_and_nothing_is_executed_twice(self):
        executed = []
        manager = self.manager()
        hold = threading.Event()

        def count(asked):
            executed.append(asked.complement)
            hold.wait(PATIENCE if asked.complement == "first" else 0)
            return "done"

        manager.on("call", "sr_mag_count")(count)
        manager.start()
        client = self.client()
        lost = client.send("call/sr_mag_count/first", within=PATIENCE)
        while not executed:
            threading.Event().wait(0.01)
        self.server.kill()
        self.server.wait()
        self.assertEqual(lost.result(PATIENCE).code, "UNKNOWN")
        hold.set()
        self.serve()
        again = None
        while again != "done":
            try:
                again = client.ask("call/sr_mag_count/second", within=1.0)
            except tahti.Error:
                threading.Event().wait(0.05)
        self.assertEqual(executed, ["first", "second"])

    def test_a_manager_in_c_answers_and_close_ends_outstanding_requests(self):
        magnet = subprocess.Popen([MAGNET, self.name], stdout=subprocess.PIPE, text=True)
        self.addCleanup(magnet.stdout.close)
        self.addCleanup(magnet.wait)
        self.addCleanup(magnet.kill)
        self.assertEqual(magnet.stdout.readline(), "serving demo_mag\n")
        client = self.client()
        self.assertEqual(client.ask("put/demo_mag_1/2.5A"), "2.5A")
        with self.assertRaisesRegex(tahti.Failed, "RANGE"):
            client.ask("put/demo_mag_1/1000A")
        self.manager().on("call", "sr_mag_never")(lambda asked: tahti.messages.Future())
        client.close()
        with self.assertRaisesRegex(tahti.Error, "closed"):
            client.ask("get/demo_mag_1")

    def test_an_absent_server_is_an_error_with_the_command_to_run(self):
        with self.assertRaisesRegex(tahti.Error, "tahti msg serve"):
            tahti.Client("operator", server="no-such-server")


unittest.main()
