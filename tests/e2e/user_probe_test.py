#!/usr/bin/env python3
"""A user's probe from its object to the report: checked, its manifest inferred,
attached beside a built-in probe, run in a HIP program; both counts agree."""
import pathlib
import tempfile
import unittest

import harness

PROBES = harness.BUILD / "tests" / "patch" / "probes"


class UserProbe(unittest.TestCase):
    def infer(self, folder, target, entry, form="textproto"):
        target_object = PROBES / f"{target}.hip.15.o"
        check = harness.run([harness.RJCTL, "check", target_object])
        self.assertIn(entry, check.stdout)
        inferred = harness.run([harness.RJCTL, "infer", target_object, "--entry", entry,
                                "--arguments", "address,telemetry", "--format", form])
        manifest = pathlib.Path(folder) / f"{entry}-{target}.{form}"
        manifest.write_text(inferred.stdout)
        harness.run([harness.RJCTL, "check", target_object, manifest, "--entry", entry])
        return target_object, manifest

    def counts(self, daemon, attachment):
        report = daemon.json("report", "--attachment", attachment)
        return {(c["location"]["kernel"], c["location"].get("kernelOffset", "0")): c
                for c in report["counts"]}

    def run_target(self, target, form="textproto"):
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder, harness.daemon() as daemon:
            target_object, manifest = self.infer(folder, target, "misaligned", form)
            user = daemon.json("attach", "--kernel", "*", "--sites", "global_*", "--probe-object",
                               str(target_object), "--probe-manifest",
                               str(manifest))["attachment"]["id"]
            lanes = daemon.attach("*", "global_*", "count-lanes")
            out = daemon.run_program("vector_add", target=target)
            self.assertIn("PASS", out.stdout)
            mine, theirs = self.counts(daemon, user), self.counts(daemon, lanes)
            self.assertEqual(set(mine), set(theirs))
            total = 0
            for place, count in mine.items():
                words = [int(w) for w in count["words"]]
                self.assertEqual(len(words), 2, place)
                self.assertEqual(words[0], 0, place)  # floats are aligned
                self.assertEqual(words[1], int(theirs[place].get("count", 0)), place)
                total += words[1]
            self.assertGreater(total, 0)
            table = daemon.ctl("report", "--attachment", user, check=False)
            self.assertIn("misaligned", table.stdout)
            status = daemon.json("status")
            kept = [a for a in status["attachments"] if a["id"] == user][0]
            self.assertIn("body_sha256", kept["spec"]["probeManifest"])
            self.assertNotIn("probeObject", kept["spec"])

    def test_gfx90a(self):
        self.run_target("gfx90a")

    def test_gfx1030(self):
        self.run_target("gfx1030", form="yaml")

    def test_another_function_is_refused(self):
        """A manifest speaks of one function; nothing is attached for another."""
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder, harness.daemon() as daemon:
            target_object, manifest = self.infer(folder, "gfx90a", "word_histogram")
            text = manifest.read_text()
            other = pathlib.Path(folder) / "other.textproto"
            other.write_text(text.replace('entry: "word_histogram"', 'entry: "misaligned"'))
            reply = daemon.ctl("attach", "--kernel", "*", "--sites", "global_*", "--probe-object",
                               str(target_object), "--probe-manifest", str(other), check=False)
            self.assertEqual(reply.returncode, 3, reply.stdout + reply.stderr)
            self.assertIn("RJD-U018", reply.stdout + reply.stderr)
            self.assertFalse(daemon.json("status").get("attachments"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
