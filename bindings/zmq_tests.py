"""pyzmq as a client of `tahti msg zmq`, with the C manager `magnet` and the binary `tahti` (the arguments)."""

import os
import socket
import struct
import subprocess
import sys
import unittest

import tahti
import zmq

MAGNET, TAHTI = sys.argv[1:3]
del sys.argv[1:3]
# Timeout, in milliseconds, after which a test fails.
PATIENCE_MS = 60_000


def said(stream, what):
    """Reads lines until one contains `what`."""
    line = ""
    while what not in line:
        line = stream.readline()
        if not line:
            raise AssertionError(f"ended before it printed {what!r}")
    return line


class Clients(unittest.TestCase):
    def setUp(self):
        self.name = f"zmq-{os.getpid()}"
        rule = "allow objects=demo_mag_* verbs=put,batch hosts=other"
        self.server = self.run_until([TAHTI, "msg", "serve", "--name", self.name, "--rule", rule], "serving as")
        self.magnet = self.run_until([MAGNET, self.name], "serving", stdout=subprocess.PIPE)
        end = [TAHTI, "msg", "zmq", "--server", self.name, "--listen", "tcp://127.0.0.1:0", "--bodies", "1MiB"]
        self.end = self.run_until(end, None)
        line = said(self.end.stderr, "ZeroMQ at ")
        self.address = line.split(" for ")[0].split(" at ")[1]
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)

    def run_until(self, command, what, stdout=None):
        process = subprocess.Popen(command, stdout=stdout, stderr=None if stdout else subprocess.PIPE, text=True)
        stream = process.stdout or process.stderr
        self.addCleanup(stream.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if what:
            said(stream, what)
        return process

    def socket(self, kind):
        client = self.context.socket(kind)
        client.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        client.setsockopt(zmq.LINGER, 0)
        client.connect(self.address)
        self.addCleanup(client.close)
        return client

    def send(self, *lines):
        """The same request by `tahti msg send` on this host."""
        command = [TAHTI, "msg", "send", "--server", self.name, *lines]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_a_req_gets_the_same_answer_as_a_local_client(self):
        client = self.socket(zmq.REQ)

        def ask(line):
            client.send_string(line)
            return client.recv_string()

        self.assertEqual(ask("put/demo_mag_1/2.5A"), "OK/2.5A")
        self.assertEqual(ask("get/demo_mag_1/current"), "OK/2.5A")
        self.assertEqual(self.send("get/demo_mag_1/current").stdout, "2.5A\n")
        self.assertEqual(ask("put/demo_mag_1/300A"), "RANGE/expected -120A to 120A")
        self.assertEqual(ask("gte/demo_mag_1"), 'NO_VERB/"gte" is no verb; did you mean "get"?')
        self.assertTrue(ask("get/li_gun/x").startswith("NO_OBJECT/no manager serves li_gun"))
        self.assertTrue(ask("nonsense").startswith("MALFORMED/"))
        self.assertTrue(ask("lock/demo_mag").startswith("NO_VERB/lock does not reach over ZeroMQ"))
        # The rule allows put and batch. Apart from that, other hosts may only read, and ZeroMQ clients count as another
        # host.
        self.assertTrue(ask("call/demo_mag_1/reset").startswith("DENIED/no rule allows user 65534 process "))
        self.assertIn("demo_mag=demo-magnets", ask("list/*"))

    def test_options_and_bodies_are_further_frames(self):
        client = self.socket(zmq.DEALER)
        # {"band": 3, "dry_run": true, "within_ns": 30000000000}
        options = bytes([0x83]) + b"\xa4band\x03\xa7dry_run\xc3\xa9within_ns\xcf" + struct.pack(">Q", 30_000_000_000)
        client.send_multipart([b"7", b"", b"put/demo_mag_2/5A", options])
        self.assertEqual(client.recv_multipart(), [b"7", b"", b"OK/5A"])
        client.send_multipart([b"8", b"", b"get/demo_mag_2/current", b"", b"a body that nobody reads"])
        self.assertEqual(client.recv_multipart(), [b"8", b"", b"OK/0A"])
        client.send_multipart([b"", b"list/server"])
        _, line, nothing, body = client.recv_multipart()
        self.assertEqual((line[:3], nothing, body[:1]), (b"OK/", b"", b"\xdc"))
        self.assertIn(f"zmq:127.0.0.1:".encode(), body)
        expired = b"\x81\xa9within_ns\x01"
        client.send_multipart([b"", b"get/demo_mag_2/current", expired])
        self.assertTrue(client.recv_multipart()[1].startswith(b"EXPIRED/"))

    def test_an_invalid_request_is_answered_and_the_next_one_is_served(self):
        client = self.socket(zmq.DEALER)
        for frames, why in [
            ([b"1", b"", b"get/demo_mag_1", b"", b"x" * 16_385], b"MALFORMED/this manager takes no bodies above 16 KiB"),
            ([b"2", b"", b"put/demo_mag_1/1A", b"", b"x" * 8_000_000], b"MALFORMED/8000000 bytes, expected at most 1048576"),
            ([b"3", b"", b"\xff\xfe"], b"MALFORMED/the line is no UTF-8"),
            ([b"4", b"", b"get/demo_mag_1", b"\xc1"], b"MALFORMED/the options"),
            ([b"5", b"", b"get/demo_mag_1", b"\x81\xa4band\x09"], b"MALFORMED/option"),
            ([b"6", b"", b"a", b"", b"b", b"c"], b"MALFORMED/4 frames"),
            ([b"7", b"", b"get/" + b"x" * 3000], b"MALFORMED/"),
            ([b"8", b""], b"MALFORMED/expected an empty frame"),
        ]:
            client.send_multipart(frames)
            found = client.recv_multipart()
            self.assertEqual(found[:2], [frames[0], b""])
            self.assertTrue(found[2].startswith(why), found)
        client.send_multipart([b"nothing empty"])
        self.assertTrue(client.recv_multipart()[0].startswith(b"MALFORMED/"))
        client.send_multipart([b"", b"get/demo_mag_1"])
        self.assertEqual(client.recv_multipart(), [b"", b"OK/0A"])

    def test_bodies_up_to_the_limit_pass_in_both_directions(self):
        camera = tahti.Manager("camera", ["camera"], server=self.name, bodies=1 << 20)
        camera.on("get", "camera")(lambda asked: tahti.Answer(str(len(asked.body)), asked.body[::-1] or bytes(1 << 20)))
        camera.start()
        self.addCleanup(camera.close)
        client = self.socket(zmq.DEALER)
        patience = b"\xa9within_ns\xcf" + struct.pack(">Q", PATIENCE_MS * 1_000_000)
        for size in (1, 16_384, 16_385, 100_000, 1 << 20):
            body = os.urandom(size)
            client.send_multipart([b"", b"get/camera", b"\x81" + patience, body])
            self.assertEqual(client.recv_multipart(), [b"", b"OK/%d" % size, b"", body[::-1]])
        client.send_multipart([b"", b"get/camera", b"\x82" + patience + b"\xacanswer_bytes\xce\x00\x10\x00\x00"])
        self.assertEqual(client.recv_multipart(), [b"", b"OK/0", b"", bytes(1 << 20)])
        client.send_multipart([b"", b"get/camera", b"\x81" + patience])
        self.assertTrue(client.recv_multipart()[1].startswith(b"UNKNOWN/the reply with a body of 1048576 bytes found no room"))

    def test_each_outstanding_request_gets_exactly_one_reply(self):
        client = self.socket(zmq.DEALER)
        client.setsockopt(zmq.RCVHWM, 0)
        for number in range(2000):
            client.send_multipart([str(number).encode(), b"", b"get/demo_mag_1/current"])
        replies = [client.recv_multipart() for _ in range(2000)]
        self.assertEqual(sorted(int(reply[0]) for reply in replies), list(range(2000)))
        self.assertEqual({reply[2].split(b"/")[0] for reply in replies} - {b"OK", b"OVERLOAD"}, set())
        self.assertGreaterEqual(sum(reply[2] == b"OK/0A" for reply in replies), 200)
        client.setsockopt(zmq.RCVTIMEO, 300)
        with self.assertRaises(zmq.Again):
            client.recv_multipart()

    def test_clients_of_other_protocols_are_disconnected_without_effect_on_others(self):
        client = self.socket(zmq.REQ)
        host, port = self.address[6:].split(":")
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        for bytes_, why in [
            (b"GET / HTTP/1.1\r\n\r\n", "no greeting"),
            (os.urandom(4096).replace(b"\xff", b"\x00"), "no greeting"),
            (greeting + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB", "its socket is a"),
            (greeting + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ" + b"\x02\x7f" + b"\xff" * 7, "9223372036854775807 bytes"),
            (greeting + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ" + b"\x01\x01x" * 13, "more than 12 frames"),
            (greeting + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ" + b"\xf8garbage", "a frame or command"),
        ]:
            with socket.create_connection((host, int(port)), timeout=60) as stranger:
                stranger.sendall(bytes_)
                self.assertIn(why, said(self.end.stderr, "cut off"))
            client.send_string("get/demo_mag_1/current")
            self.assertEqual(client.recv_string(), "OK/0A")

    def test_a_client_that_disconnects_with_outstanding_requests_leaves_nothing(self):
        # The manager is stopped, so its requests stay outstanding.
        os.kill(self.magnet.pid, 19)
        for _ in range(3):
            client = self.socket(zmq.DEALER)
            for number in range(100):
                client.send_multipart([b"", b"get/demo_mag_1/current"])
            client.send_multipart([b"", b"ping/server"])
            self.assertEqual(client.recv_multipart()[1], f"OK/{self.name}".encode())
            client.close()
            said(self.end.stderr, "disconnected")
            said(self.server.stderr, "zmq:127.0.0.1")
        os.kill(self.magnet.pid, 18)
        for line in iter(self.server.stderr.readline, ""):
            if "zmq:" in line and "disconnected" in line:
                break
        client = self.socket(zmq.REQ)
        client.send_string("get/demo_mag_1/current")
        self.assertEqual(client.recv_string(), "OK/0A")
        self.assertNotIn("orphaned=0 ", self.send("describe/server").stdout)

    def test_a_lost_server_is_a_reply_and_a_restarted_one_serves_again(self):
        client = self.socket(zmq.REQ)
        os.kill(self.magnet.pid, 19)
        client.send_string("put/demo_mag_1/1A")
        said(self.server.stderr, "zmq:127.0.0.1")
        while "forwarded=0 " in self.send("describe/server").stdout:
            pass
        self.server.kill()
        self.server.wait()
        self.assertTrue(client.recv_string().startswith("UNKNOWN/message server: lost"))
        client.send_string("get/demo_mag_1/current")
        self.assertRegex(client.recv_string(), "^(NO_OBJECT|UNKNOWN|TIMEOUT)/")
        self.server = self.run_until([TAHTI, "msg", "serve", "--name", self.name], "serving as")
        reply = ""
        while reply != f"OK/{self.name}":
            client.send_string("ping/server")
            reply = client.recv_string()


unittest.main()
