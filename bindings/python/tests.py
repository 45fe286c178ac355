"""The package as pip installed it, beside the C example `meet` that runs as `serve` (its folder is the argument)."""

import subprocess
import sys
import unittest

import tahti

MEET = sys.argv.pop(1)


class Team(unittest.TestCase):
    def test_a_barrier_is_met_with_a_program_in_c_and_its_variable_read(self):
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

    def test_a_barrier_that_nobody_else_comes_to_breaks(self):
        barrier = tahti.Barrier.create(None, 2)
        for _ in range(2):
            with self.assertRaises(tahti.BrokenBarrier):
                barrier.wait(within=0.01)
        self.assertTrue(tahti.Barrier.create(None, 1).wait())

    def test_what_does_not_exist_is_refused_in_words(self):
        for wrong in (lambda: tahti.Barrier.open("nobody"), lambda: tahti.Variables("nobody"),
                      lambda: tahti.Barrier.create(None, 0)):
            with self.assertRaisesRegex(tahti.Error, "expected"):
                wrong()


unittest.main()
