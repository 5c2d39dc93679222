#!/usr/bin/env python3
"""An opcode profile of a HIP program: its classes add up to what the soft GPU itself
executed, class by class; what the attachment leaves out is what is missing.

Usage: opcodes_test.py TARGET PROGRAM   (environment: see harness.py)
"""
import collections
import fnmatch
import pathlib
import sys
import tempfile
import unittest

import harness
from ground_truth import GroundTruth

TARGET, PROGRAM = None, None
# Over mnemonics without wildcards but "*" at their ends, so that fnmatch agrees.
ROWS = [("v_*", "vector"), ("s_load_*", "scalar memory"), ("s_cbranch_*", "branches"),
        ("s_*", "scalar"), ("global_*", "memory"), ("ds_*", "lds"), ("*", "other")]


def class_of(instruction):
    mnemonic = instruction.split(" ")[0]
    return next(name for glob, name in ROWS if fnmatch.fnmatchcase(mnemonic, glob))


class Opcodes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")
        self.addCleanup(self.folder.cleanup)
        self.table = pathlib.Path(self.folder.name) / "table.yaml"
        self.table.write_text("rows:\n" + "".join(
            f"  - {{match: \"{glob}\", class: {name}}}\n" for glob, name in ROWS))

    def truth(self, daemon):
        """Executions by class, as the soft GPU counted them in a plain run."""
        counts = pathlib.Path(self.folder.name) / "plain"
        harness.run([harness.PROGRAMS / PROGRAM],
                    env=harness.softgpu_env(target=TARGET, counts=counts), timeout=600)
        journal = GroundTruth(counts)
        instructions = {}
        for site in daemon.json("sites", "--kernel", "*").get("sites", []):
            at = site["location"]
            instructions[(at["kernel"], int(at["codeObjectVaddr"]))] = at["instruction"]
        by_class = collections.Counter()
        for place, (waves, _) in journal.counts.items():
            if place[0] != "-":  # ROCR's own copy kernels: in no code object
                by_class[class_of(instructions[place])] += waves
        return by_class

    def profile(self, daemon, code):
        result = daemon.ctl("opcodes", "profile", self.table, "-o", "json", check=False)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return harness.json.loads(result.stdout)

    def classes(self, profile, field="count"):
        return {c["class"]: int(c[field]) for c in profile["classes"] if field in c}

    def test_classes_are_the_ground_truth(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "block-count")
            daemon.run_program(PROGRAM, target=TARGET)
            truth = self.truth(daemon)
            profile = self.profile(daemon, 0)
            self.assertEqual(self.classes(profile), {k: v for k, v in truth.items() if v})
            self.assertEqual(int(profile["total"]), sum(truth.values()))
            self.assertTrue(profile["final"])
            self.assertGreater(len([v for v in truth.values() if v]), 3)
            print(f"{PROGRAM} {TARGET}: {profile['total']} executions in {dict(truth)}",
                  file=sys.stderr)

    def test_what_is_left_out_is_said(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "not global", "block-count")
            daemon.run_program(PROGRAM, target=TARGET)
            truth = self.truth(daemon)
            profile = self.profile(daemon, 4)
            self.assertEqual(set(self.classes(profile, "sitesNotCounted")), {"memory"})
            missing = truth.pop("memory")
            self.assertGreater(missing, 0)
            self.assertEqual(self.classes(profile), {k: v for k, v in truth.items() if v})
            self.assertEqual(int(profile["total"]), sum(truth.values()))


if __name__ == "__main__":
    TARGET, PROGRAM = sys.argv[1:]
    del sys.argv[1:]
    unittest.main(verbosity=2)
