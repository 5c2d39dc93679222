#!/usr/bin/env python3
"""rjctl and rjdbid as people get them wrong, and `rjctl run` as they get it right.

Every wrong use ends with exit code 2 and one line that says why; in JSON mode
with a whole object.
"""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import harness

GOOD = harness.PROGRAMS / "loader_kernel_gfx90a.co"


def loader(code_object, *options):
    return [harness.PROGRAMS / "hsa_loader_paths", "--code-object", code_object, *options]


class RunReport(unittest.TestCase):
    """`rjctl run --attach --report`, with the real agent."""

    def run_with(self, daemon, *options, program=()):
        return harness.run([harness.RJCTL, "--socket", daemon.control_socket, *options,
                            *(program or loader(GOOD, "--repeat", "2", "--elements", "640"))],
                           env=daemon.env(), check=False)

    def options(self, daemon, sites):
        return ["run", "--agent-socket", daemon.agent_socket, "--report",
                "--attach", f"kernel=loader_kernel,sites={sites},probe=count-lanes", "--"]

    def test_counts_of_the_run(self):
        with harness.daemon() as daemon:
            result = self.run_with(daemon, *self.options(daemon, "global_store*"))
            self.assertEqual(result.returncode, 0, result.stderr)
            program, report = result.stdout.split("\n", 1)
            self.assertTrue(program.startswith("PASS"), program)
            rows = [line.split() for line in report.splitlines() if "count-lanes" in line]
            self.assertEqual(len(rows), 1, report)
            self.assertEqual(rows[0][2], "1280", "640 lanes, twice, and final")
            self.assertIn("1 site requested: 1 attached", report)
            self.assertEqual(daemon.json("status").get("attachments", []), [], "gone with the run")

    def test_gaps_are_the_runs_own(self):
        other = harness.PROGRAMS / "loader_kernel_gfx1030.co"
        with harness.daemon() as daemon:
            gap = self.run_with(daemon, *self.options(daemon, "global_store*"), program=loader(other))
            self.assertIn("gap[RJD-G007]", gap.stdout)
            self.assertIn("1 gap\n", gap.stdout)
            clean = self.run_with(daemon, *self.options(daemon, "global_store*"))
            self.assertNotIn("gap[", clean.stdout)
            self.assertIn("0 gaps\n", clean.stdout)
            self.assertIn("1 gap\n", daemon.ctl("coverage", check=False).stdout)

    def test_json(self):
        with harness.daemon() as daemon:
            result = self.run_with(daemon, "-o", "json", *self.options(daemon, "global_store*"))
            self.assertEqual(result.returncode, 0, result.stderr)
            program, report = result.stdout.split("\n", 1)
            self.assertTrue(program.startswith("PASS"), program)
            counts = json.loads(report)["counts"]
            self.assertEqual(sorted(int(c["count"]) for c in counts), [640, 640])
            self.assertTrue(all(c["final"] for c in counts))

    def test_the_programs_exit_code_wins(self):
        with harness.daemon() as daemon:
            result = self.run_with(daemon, *self.options(daemon, "ds_*"),
                                   program=loader("/no/such/object"))
            self.assertEqual(result.returncode, 1)
            self.assertIn("FAIL", result.stdout)
            self.assertIn("No counts.", result.stdout)

    def test_a_program_that_dies(self):
        with harness.daemon() as daemon:
            script = 'exec 3>&1; "$@" >&3; kill -SEGV $$'
            result = self.run_with(daemon, *self.options(daemon, "global_store*"),
                                   program=["/bin/sh", "-c", script, "sh", *loader(GOOD)])
            self.assertEqual(result.returncode, 139)
            self.assertIn("1 site requested: 1 attached", result.stdout)


class CommandLines(unittest.TestCase):
    """Every wrong use of rjctl and rjdbid: exit code 2 and one line that says why."""

    WRONG = {
        "": [[], ["no-such-verb"], ["--no-such-option"], ["--output"], ["--output", "xml", "status"],
             ["--color", "sometimes", "status"], ["--socket"],
             ["--socket", "a", "--socket", "b", "status"], ["\x1b[31mverb"], [""],
             ["status", "coverage"]],
        "attach": [[], ["--kernel", "k"], ["--kernel", "k", "--sites", "s"],
                   ["--kernel", "a", "--kernel", "b", "--sites", "s", "--probe", "nop"],
                   ["k", "s", "nop"]] + [
                       ["--kernel", "k", "--sites", "s", "--probe", "nop", *more] for more in
                       (["--pid", "0"], ["--pid", "-1"], ["--pid", "4294967296"], ["--pid", "x"],
                        ["--pid", ""], ["--max-sgpr-delta", "-1"], ["--max-sgpr-delta", "1.5"],
                        ["--max-sgpr-delta", "4294967296"], ["--max-sgpr-delta", "0x10"],
                        ["--max-sgpr-delta", "1", "--max-sgpr-delta", "2"],
                        ["--max-code-growth-bytes", "18446744073709551616"],
                        ["--allow-sabotage=perhaps"], ["--unknown", "1"])],
        "detach": [[], ["--all", "a1"], ["--everything"]],
        "status": [["extra"], ["--unknown"]],
        "code-objects": [["extra"], ["--unknown"]],
        "kernels": [["a", "b"], ["/no/such/file"], ["--object"], ["/"], ["/dev/null"]],
        "sites": [["a", "b"], ["/no/such/file"], ["--sites"], ["/"], ["/dev/null"],
                  [GOOD, "--sites", ",,"], [GOOD, "--sites", "["],
                  [GOOD, "--sites", "kernel+"], [GOOD, "--sites", "kernel+zz"]],
        "why-not-attached": [[], ["k", "zz"], ["k", "-1"], ["k", ""], ["k", "0x"], ["k", "1 2"],
                             ["k", "18446744073709551616"], ["k", "0x1ffffffffffffffff"],
                             ["k", "1", "2"]],
        "coverage": [["extra"], ["--attachment"], ["--kernel", "a", "--kernel", "b"]],
        "report": [["extra"], ["--session"], ["--summary=perhaps"], ["--sort", "size"], ["--html"]],
        "export": [[], ["--format"], ["--format", "svg"], ["--format", "folded", "extra"],
                   ["--format", "folded", "--output-file"]],
        "top": [["extra"], ["--interval", "0"], ["--interval", "nan"], ["--interval", "x"],
                ["--count", "0"], ["--rows", "-1"]],
        "explain": [[], ["RJD-X999"], ["a", "b"], [""], ["\x1b[31m"]],
        "admit": [[], [GOOD], [GOOD, "--attach", ""], [GOOD, "--attach", "kernel=*"],
                  [GOOD, "--attach", "nonsense"], [GOOD, "--attach", "key=1"],
                  ["/no/such/file", "--attach", "kernel=*,sites=*,probe=nop"],
                  ["/", "--attach", "kernel=*,sites=*,probe=nop"],
                  [GOOD, "--attach", "kernel=*,sites=*,probe=nop,pid=x"]],
        "run": [[], ["--"], ["--attach"], ["--attach", "nonsense", "--", "true"], ["--unknown", "true"],
                ["--agent", "/no/such/agent.so", "--", "true"]],
        "completion": [[], ["tcsh"], ["bash", "zsh"]],
    }

    def check(self, arguments, code=2):
        for json_mode in (False, True):
            command = [harness.RJCTL, *(["-o", "json"] if json_mode else []), *arguments]
            with self.subTest(command=command[1:]):
                result = subprocess.run([os.fsencode(c) for c in command], capture_output=True,
                                        timeout=60, env={**os.environ, "RJDBI_CONTROL_SOCKET": "/no/such.sock"})
                self.assertEqual(result.returncode, code, result.stderr)
                errors = [l for l in result.stderr.splitlines() if l.startswith(b"error: ")]
                self.assertEqual(len(errors), 1, result.stderr)
                self.assertLess(len(errors[0]), 400, "one line a person can read")
                self.assertNotIn(b"\x1b", result.stderr + result.stdout)
                result.stderr.decode("utf-8")
                if json_mode:
                    error = json.loads(result.stdout)["error"]
                    self.assertEqual(error["exitCode"], code)
                    self.assertTrue(error["message"])
                else:
                    self.assertEqual(result.stdout, b"")

    def test_rjctl(self):
        for verb, cases in self.WRONG.items():
            for case in cases:
                self.check([verb, *case] if verb else case)

    def test_rjctl_files_that_are_no_code_objects(self):
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder:
            huge, fifo, text = (pathlib.Path(folder) / name for name in ("huge", "fifo", "text"))
            huge.touch()
            os.truncate(huge, 1 << 40)  # sparse
            os.mkfifo(fifo)
            text.write_text("text")
            for file in (huge, fifo, text, "/dev/zero", "/proc/self/mem", "/proc/self/exe"):
                self.check(["kernels", file])
                self.check(["sites", file])
            for file in (huge, fifo):
                self.check(["admit", file, "--attach", "kernel=*,sites=*,probe=nop"])

    def test_rjctl_text_that_is_not_utf8(self):
        bad = os.fsdecode(b"\xff\xfe")
        for arguments in (["attach", "--kernel", bad, "--sites", "*", "--probe", "nop"],
                          ["attach", "--kernel", "*", "--sites", bad, "--probe", "nop"],
                          ["attach", "--kernel", "*", "--sites", "*", "--probe", bad],
                          ["attach", "--kernel", "*", "--sites", "*", "--probe", "nop", "--owner", bad],
                          ["detach", bad], ["kernels", "--kernel", bad], ["sites", "--sites", bad],
                          ["why-not-attached", bad], ["coverage", "--session", bad],
                          ["report", "--attachment", bad], ["explain", bad], [bad],
                          ["kernels", "/no/such/" + bad],
                          ["run", "--attach", f"kernel={bad},sites=*,probe=nop", "true"]):
            self.check(arguments)

    def test_huge_texts_are_refused_or_harmless(self):
        huge = "a" * 100_000
        with harness.daemon() as daemon:
            self.assertEqual(daemon.ctl("why-not-attached", huge, check=False).returncode, 3)
            for kernel, sites in ((huge, "*"), ("*", huge), ("*" * 20_000 + "x", "*"),
                                  ("*", ",".join(["a*b*c*"] * 10_000)), ("[" * 1000, "*"),
                                  ("*", "kernel+0xffffffffffffffff"), ("*", "entry," * 5000 + "entry")):
                reply = daemon.ctl("attach", "--kernel", kernel, "--sites", sites, "--probe", "nop",
                                   check=False)
                self.assertIn(reply.returncode, (0, 2, 3), reply.stderr[:500])
                self.assertLess(len(reply.stderr), 4 * len(kernel + sites) + 4000)
            begin = time.monotonic()
            self.assertIn("PASS", daemon.run_program(*loader(GOOD)).stdout)
            self.assertLess(time.monotonic() - begin, 10)
            self.assertEqual(daemon.ctl("status", check=False).returncode, 0)
            for verb in (["coverage"], ["report"], ["why-not-attached", "*"],
                         ["why-not-attached", "*", "0xffffffffffffffff"]):
                self.assertIn(daemon.ctl(*verb, check=False).returncode, (0, 3, 4))

    def test_names_that_nothing_is_known_of(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "global_store*", "nop")
            self.assertIn("PASS", daemon.run_program(*loader(GOOD)).stdout)
            for verb in ("coverage", "report"):
                for option in (["--attachment", "a2"], ["--session", "no-such"]):
                    result = daemon.ctl(verb, *option, "-o", "json", check=False)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    error = json.loads(result.stdout)["error"]
                    self.assertIn("rjctl status", error["message"])
                self.assertEqual(daemon.ctl(verb, "--attachment", "a1").returncode, 0)
            for offset in ("0x2", "0xfffffff0"):
                why = daemon.json("why-not-attached", "loader_kernel", offset)
                self.assertEqual([v["constraintId"] for v in why["violations"]], ["RJD-S012"])
                self.assertIn("nearest start at 0x", why["violations"][0]["message"])

    def test_the_last_offset(self):
        for offset in ("0xffffffffffffffff", "0x10000", "0x1"):
            result = harness.run([harness.RJCTL, "-o", "json", "admit", GOOD, "--attach",
                                  f"kernel=*,sites=kernel+{offset},probe=nop"], check=False)
            self.assertEqual(result.returncode, 3, result.stderr)
            record = json.loads(result.stdout)
            self.assertTrue(record["decisions"][0]["violations"][0]["constraintId"].startswith("RJD-"))

    def test_rjdbid(self):
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder:
            bad = pathlib.Path(folder) / "bad.yaml"
            bad.write_bytes(b"\xff\xfe: [\x00\n")
            unknown = pathlib.Path(folder) / "unknown.yaml"
            unknown.write_text("no_such_key: 1\n")
            for case in (["--no-such-option"], ["extra"], ["--config"], ["--config", "/no/such/file"],
                         ["--config", bad], ["--config", unknown], ["--config", folder],
                         ["--log-level", "loud"], ["--log-format", "xml"],
                         ["--log-level", "info", "--log-level", "warn"]):
                with self.subTest(case):
                    result = harness.run([harness.RJDBID, *case], check=False, timeout=30)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertEqual(result.stdout, "")
                    self.assertRegex(result.stderr, "(?m)^error: ")
                    self.assertLess(len(result.stderr.splitlines()), 4, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
