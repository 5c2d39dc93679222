#!/usr/bin/env python3
"""Real library code objects, patched at every memory instruction, are accepted
by the real ROCR.

Usage: corpus_load_test.py TARGET ROCRAND ROCSPARSE

Takes objects of Debian's librocrand and librocsparse for TARGET, smallest first
(the corpus tests cover the large ones without loading them), admits count-waves
at every memory instruction offline, in clones, with trampolines and in images beside
the original, and loads original and patched images.
"""
import itertools
import json
import pathlib
import sys
import tempfile
import unittest

import harness

OBJECTS = 26  # per target
# The soft GPU, like most machines, runs with XNACK off: ROCR takes no other.
BUNDLE_ENTRY = {"gfx90a": "gfx90a:xnack-", "gfx1030": "gfx1030"}
TARGET, LIBRARIES = None, None


class CorpusLoad(unittest.TestCase):
    def test_every_patched_image_loads(self):
        with tempfile.TemporaryDirectory(prefix="rjdbi-corpus-") as folder:
            names = harness.run([harness.BUILD / "tests" / "corpus" / "extract_code_objects", folder,
                                 BUNDLE_ENTRY[TARGET], *LIBRARIES]).stdout.split()
            names.sort(key=lambda n: pathlib.Path(n).stat().st_size)
            names = names[:OBJECTS]
            self.assertEqual(len(names), OBJECTS)
            patched, requested, attached = [], 0, 0
            for name, form in itertools.product(names, ("clone", "trampoline", "beside")):
                out = f"{name}.{form}.patched"
                placement = "auto" if form == "beside" else form
                reply = harness.run([harness.RJCTL, "admit", name, "--attach",
                                     f"kernel=*,sites=memory,probe=count-waves,placement={placement}",
                                     *(["--beside"] if form == "beside" else []),
                                     "--output-image", out, "--output", "json"], check=False)
                self.assertIn(reply.returncode, (0, 3, 4), f"{name}: {reply.stdout[-2000:]}{reply.stderr}")
                record = json.loads(reply.stdout)
                if form == "beside":
                    switched = {s["kernel"] for s in record.get("kernelSwitches", [])}
                    record = record["record"]
                    self.assertEqual(switched, {c["kernel"] for c in record["coverage"]
                                                if c.get("attached") or c.get("degraded")}, name)
                row = [int(c.get("requested", 0)) for c in record["coverage"]]
                done = [int(c.get("attached", 0)) + int(c.get("degraded", 0)) for c in record["coverage"]]
                refused = [int(r["sites"]) for c in record["coverage"] for r in c.get("refused", [])]
                self.assertEqual(sum(row), sum(done) + sum(refused), name)
                self.assertEqual(sum(row), len(record.get("decisions", [])), name)
                requested, attached = requested + sum(row), attached + sum(done)
                if sum(done):
                    patched.append(out)
            self.assertGreaterEqual(len(patched), 60)
            loaded = harness.run([harness.BUILD / "tests" / "e2e" / "load_images", *names, *patched],
                                 env=harness.softgpu_env(target=TARGET), timeout=600)
            lines = loaded.stdout.splitlines()
            self.assertEqual(len(lines), len(names) + len(patched))
            kernels = {line.split()[1]: line.split()[2] for line in lines}
            for out in patched:
                self.assertEqual(kernels[out], kernels[out.rsplit(".", 2)[0]])
            print(f"{TARGET}: {len(patched)} patched images of {len(names)} objects load; "
                  f"{attached} of {requested} sites attached", file=sys.stderr)


if __name__ == "__main__":
    TARGET, *LIBRARIES = sys.argv[1:4]
    del sys.argv[1:4]
    unittest.main(verbosity=2)
