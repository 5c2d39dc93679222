#!/usr/bin/env python3
"""Every benchmark runs, and reports finite figures. Nothing is said of how fast.

Usage: bench_smoke_test.py NAME=PROGRAM...
"""
import json
import math
import os
import subprocess
import sys
import unittest

PROGRAMS = {}
# Per program: the rows that are cheap enough for every build, the counters that
# each of them must have, and how many there are.
CASES = {
    "admission_bench": ("gfx90a/small", {"times_objdump"}, 5),
    "drain_bench": (".", {"records_per_s", "times_memcpy"}, 6),
    "latency_bench": ("gfx90a/small", {"object_MB"}, 3),
    "load_bench": ("process_start|load/gfx90a/small", {"over_plain_x"}, 5),
    "probe_cost_bench": ("vector_add/gfx90a", {"wave_instructions_x", "sites_attached"}, 3),
    "softgpu_bench": ("Divergent/gfx90a", {"lane_instructions"}, 1),
}


class BenchSmoke(unittest.TestCase):
    def check(self, name):
        rows, counters, expected = CASES[name]
        result = subprocess.run(
            [PROGRAMS[name], f"--benchmark_filter={rows}", "--benchmark_min_time=0.001",
             "--benchmark_format=json"],
            env={**os.environ, "RJDBI_BENCH_ROUNDS": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=250)
        self.assertEqual(result.returncode, 0, result.stderr)
        benchmarks = json.loads(result.stdout)["benchmarks"]
        self.assertEqual(len(benchmarks), expected)
        for row in benchmarks:
            self.assertFalse(row.get("error_occurred"), row)
            self.assertLessEqual(counters, row.keys(), row["name"])
            self.assertGreater(row["real_time"], 0, row["name"])
            for key, value in row.items():
                if isinstance(value, (int, float)):
                    self.assertTrue(math.isfinite(value), f"{row['name']}: {key} = {value}")

    def test_admission(self):
        self.check("admission_bench")

    def test_drain(self):
        self.check("drain_bench")

    def test_latency(self):
        self.check("latency_bench")

    def test_load(self):
        self.check("load_bench")

    def test_probe_cost(self):
        self.check("probe_cost_bench")

    def test_softgpu(self):
        self.check("softgpu_bench")


if __name__ == "__main__":
    PROGRAMS = dict(argument.split("=", 1) for argument in sys.argv[1:])
    del sys.argv[1:]
    unittest.main(verbosity=2)
