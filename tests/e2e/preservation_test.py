#!/usr/bin/env python3
"""One real program, plain and instrumented: same results, and every counter
equal to what the soft GPU itself counted at that address.

Usage: preservation_test.py TARGET PROGRAM [ARGUMENT...]   (environment: see harness.py)

Shown for two interleaving seeds each:
  - count-waves and count-lanes at every memory instruction: the program's own
    result line is unchanged; each site's counter equals what the soft GPU
    counted at the site's address in the same run (or, for a kernel that was
    cloned or copied and so ran elsewhere, in the plain run with the same seed);
    as clones, which is the default, and with trampolines;
  - block-count at every instruction (of a library: at every memory instruction):
    each instruction's count, taken at another one of its block, is the soft GPU's;
  - nop at every memory instruction changes nothing;
  - the coverage record accounts for every requested site.
"""
import pathlib
import sys
import tempfile
import unittest

import harness
from ground_truth import GroundTruth

TARGET, PROGRAM, ARGUMENTS = None, None, []
SEEDS = (1, 2)
# Seed and placement of each instrumented run.
RUNS = ((1, "auto"), (2, "auto"), (1, "trampoline"))


def result_line(output):
    lines = [line for line in output.splitlines() if line.startswith("PASS")]
    if len(lines) != 1:
        raise AssertionError(f"no PASS line in:\n{output}")
    return lines[0]


class Preservation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")
        cls.plain, cls.plain_truth = {}, {}
        for seed in SEEDS:
            counts = pathlib.Path(cls.folder.name) / f"plain-{seed}"
            out = harness.run([harness.PROGRAMS / PROGRAM, *ARGUMENTS],
                              env=harness.softgpu_env(target=TARGET, seed=seed, counts=counts),
                              timeout=600)
            cls.plain[seed] = result_line(out.stdout)
            cls.plain_truth[seed] = GroundTruth(counts)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def instrumented(self, daemon, seed):
        counts = pathlib.Path(self.folder.name) / f"counts-{seed}-{id(daemon)}"
        out = daemon.run_program(PROGRAM, *ARGUMENTS, target=TARGET, seed=seed, counts=counts,
                                 timeout=900)
        self.assertEqual(result_line(out.stdout), self.plain[seed])
        return GroundTruth(counts)

    def check_conservation(self, coverage):
        self.assertTrue(coverage["coverage"], "no coverage was recorded")
        for row in coverage["coverage"]:
            refused = sum(int(r.get("sites", 0)) for r in row.get("refused", []))
            self.assertEqual(int(row.get("requested", 0)),
                             int(row.get("attached", 0)) + int(row.get("degraded", 0)) + refused,
                             row)
        self.assertEqual(coverage.get("gaps", []), [])

    def check_placement(self, coverage, placement):
        """Every kernel with probes is a clone, or says why it is none."""
        seen = set()
        for row in coverage["coverage"]:
            if "placement" not in row:
                continue
            how = row["placement"]
            seen.add(how["placement"])
            self.assertGreater(int(how["codeBytes"]), 0, row)
            if placement == "auto":
                self.assertTrue(how["placement"] == "CLONE" or "notCloned" in how, row)
        self.assertIn("CLONE" if placement == "auto" else "TRAMPOLINE", seen)
        if placement == "trampoline":
            self.assertNotIn("CLONE", seen)

    def test_counters_equal_ground_truth(self):
        for seed, placement in RUNS:
            with harness.daemon() as daemon:
                waves = daemon.attach("*", "memory", "count-waves", "--placement", placement)
                lanes = daemon.attach("*", "memory", "count-lanes", "--placement", placement)
                truth = self.instrumented(daemon, seed)
                report = daemon.json("report")
                coverage = daemon.json("coverage")
                self.check_conservation(coverage)
                self.check_placement(coverage, placement)
                self.check_counts(report, seed, truth,
                                  {waves: GroundTruth.waves, lanes: GroundTruth.lanes})

    def test_block_counts_equal_ground_truth(self):
        # A library's kernels have too many instructions to report each.
        sites = "memory" if PROGRAM.startswith("roc") else "*"
        seed = SEEDS[0]
        with harness.daemon() as daemon:
            blocks = daemon.attach("*", sites, "block-count")
            truth = self.instrumented(daemon, seed)
            report = daemon.json("report")
            self.check_conservation(daemon.json("coverage"))
            self.check_counts(report, seed, truth, {blocks: GroundTruth.waves})

    def check_counts(self, report, seed, truth, probes):
        """Every row of the report against the soft GPU's own count at its address."""
        checked, executed, seen = 0, 0, set()
        for row in report["counts"]:
            kernel, address = row["location"]["kernel"], int(row["location"]["codeObjectVaddr"])
            plain = self.plain_truth[seed]
            in_place = truth.entries.get(kernel) == plain.entries.get(kernel)
            source = truth if in_place else plain
            want = probes[row["attachmentId"]](source, kernel, address)
            self.assertTrue(row.get("final"), row)
            self.assertEqual(int(row.get("count", 0)), want, row)
            checked += 1
            executed += want > 0
            seen.add((row["attachmentId"], kernel, address))
        self.assertEqual(len(seen), checked, "a site was reported twice")
        self.assertGreater(executed, 0, "no instrumented site was executed")
        print(f"{PROGRAM} {' '.join(ARGUMENTS)} {TARGET} seed {seed}: {checked} counters equal ground truth, "
              f"{executed} of them non-zero", file=sys.stderr)

    def test_nop_changes_nothing(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "memory", "nop")
            self.instrumented(daemon, SEEDS[0])
            total = daemon.json("coverage")["total"]
            self.assertGreater(int(total.get("attached", 0)) + int(total.get("degraded", 0)), 0)


if __name__ == "__main__":
    TARGET, PROGRAM, *ARGUMENTS = sys.argv[1:]
    del sys.argv[1:]
    unittest.main(verbosity=2)
