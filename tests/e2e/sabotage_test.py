#!/usr/bin/env python3
"""The patched bytes really run: ending the program at a store changes the
result, and only when both opt-ins are given."""
import unittest

import harness


class Sabotage(unittest.TestCase):
    def run_with(self, config, options):
        with harness.daemon(config) as daemon:
            reply = daemon.ctl("attach", "--kernel", "*", "--sites", "global_store*",
                               "--probe", "sabotage", *options, "--output", "json", check=False)
            out = daemon.run_program("vector_add", check=False)
            return reply, out

    def test_without_the_daemons_opt_in(self):
        reply, out = self.run_with("allow_sabotage: false\n", ["--allow-sabotage"])
        self.assertEqual(reply.returncode, 3, reply.stdout + reply.stderr)
        self.assertIn("RJD-A", reply.stdout)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("PASS", out.stdout)

    def test_without_the_operators_opt_in(self):
        reply, out = self.run_with("allow_sabotage: true\n", [])
        self.assertEqual(reply.returncode, 3, reply.stdout + reply.stderr)
        self.assertEqual(out.returncode, 0, out.stderr)

    def test_with_both_the_result_changes(self):
        reply, out = self.run_with("allow_sabotage: true\nreport_interval_ms: 100\n",
                                   ["--allow-sabotage"])
        self.assertEqual(reply.returncode, 0, reply.stdout + reply.stderr)
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("FAIL", out.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
