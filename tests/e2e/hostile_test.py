#!/usr/bin/env python3
"""What can go wrong around a process: objects that are not what they seem, a
daemon that is away, stuck, killed or not a daemon, disks that are full, names
that are not text. The program must behave as without the agent, at most one
deadline later, and what was not observed must be on record.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

import harness

GOOD = harness.PROGRAMS / "loader_kernel_gfx90a.co"
OTHER_ISA = harness.PROGRAMS / "loader_kernel_gfx1030.co"
LOADER = harness.PROGRAMS / "hsa_loader_paths"
MIB = 1 << 20
# What a loaded machine may add to a bounded wait.
SLACK_S = 5.0


def outcome(result):
    """Exit code as rjctl run gives it, and output."""
    code = result.returncode if result.returncode >= 0 else 128 - result.returncode
    return code, result.stdout, result.stderr


def loader(code_object, *options):
    return [LOADER, "--code-object", code_object, *options]


def resident_peak(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition, what, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"did not happen in {timeout} s: {what}")


class Elf:
    """Where the parts of a 64-bit ELF file are."""

    def __init__(self, data):
        self.data = data
        self.phoff, self.shoff = struct.unpack_from("<QQ", data, 0x20)
        self.phnum, _, self.shnum = struct.unpack_from("<HHH", data, 0x38)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, self.shoff + 64 * i)
                         for i in range(self.shnum)]

    def of_type(self, kind):
        return [(s[4], s[5]) for s in self.sections if s[1] == kind]

    def parts(self):
        """Byte ranges, by name: all that describes the code, not the code."""
        return {"elf header": [(0, 64)],
                "program headers": [(self.phoff, 56 * self.phnum)],
                "section headers": [(self.shoff, 64 * self.shnum)],
                "note": self.of_type(7),
                "symbols": self.of_type(2) + self.of_type(11),
                "string tables": self.of_type(3),
                "hash tables": self.of_type(5) + self.of_type(0x6ffffff6)}


def flipped(data, part, generator):
    offset, size = generator.choice(Elf(data).parts()[part])
    changed = bytearray(data)
    changed[offset + generator.randrange(size)] ^= 1 << generator.randrange(8)
    return bytes(changed)


class MalformedObjects(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")))
        self.daemon = self.enterContext(harness.daemon())
        self.daemon.attach("*", "*", "count-waves")

    def objects(self):
        listed = self.daemon.json("code-objects").get("codeObjects", [])
        return {o["sha256"]: o for o in listed}

    def assert_same(self, name, data, paths=("memory", "file")):
        file = self.folder / "object"
        file.write_bytes(data)
        for path in paths:
            with self.subTest(name, path=path):
                command = loader(file, "--path", path)
                plain = harness.run(command, env=harness.softgpu_env(), check=False)
                under = self.daemon.run_program(*command, check=False)
                self.assertEqual(outcome(under), outcome(plain))
                self.assertIsNone(self.daemon.process.poll(), self.daemon.log.read_text())

    def assert_refused(self, data):
        object_ = self.objects().get(hashlib.sha256(data).hexdigest())
        self.assertIsNotNone(object_, "the load is not on record")
        self.assertEqual(object_["verdict"], "ORIGINAL_REFUSED")
        ids = [v["constraintId"] for v in object_["objectViolations"]]
        self.assertTrue(all(i.startswith("RJD-O") for i in ids) and ids, ids)

    def test_not_code_objects(self):
        good = GOOD.read_bytes()
        magic = b"\x7fELG" + good[4:]
        wrong_machine = good[:18] + struct.pack("<H", 62) + good[20:]
        refused = {
            "half": good[:len(good) // 2], "header only": good[:64], "one byte short": good[:-1],
            "text": b"not an object\n" * 50, "zeros": bytes(4096), "one byte": b"\x7f",
            "x86 program": pathlib.Path("/bin/true").read_bytes(), "magic": magic,
            "machine": wrong_machine,
            "bundle": b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 2**63) + good,
        }
        for name, data in refused.items():
            self.assert_same(name, data)
            with self.subTest(name):
                self.assert_refused(data)
        self.assert_same("empty", b"")
        table = self.daemon.ctl("code-objects").stdout
        self.assertIn("error[RJD-O001]", table)
        coverage = self.daemon.ctl("coverage", check=False)
        self.assertEqual(coverage.returncode, 3, "nothing is in place")
        self.assertIn("error[RJD-O001]", coverage.stdout)
        self.assertEqual(len(self.daemon.json("coverage", ok=(3,))["refusedObjects"]), len(refused))
        why = self.daemon.ctl("why-not-attached", "*", check=False)
        self.assertIn("error[RJD-O001]", why.stdout)

    def test_a_refused_object_makes_coverage_partial(self):
        self.daemon.run_program(*loader(GOOD))
        self.daemon.ctl("detach", "--all")
        self.daemon.attach("*", "global_store*", "count-waves")
        self.daemon.run_program(*loader(GOOD))
        self.assertEqual(self.daemon.ctl("coverage", check=False).returncode, 0)
        (self.folder / "text").write_text("text")
        self.daemon.run_program(*loader(self.folder / "text"), check=False)
        self.assertEqual(self.daemon.ctl("coverage", check=False).returncode, 4)

    def test_flipped_bits(self):
        good, generator = GOOD.read_bytes(), random.Random(20260)
        for part in Elf(good).parts():
            for round_ in range(6):
                data = flipped(good, part, generator)
                self.assert_same(f"{part} {round_}", data, paths=(("memory", "file")[round_ % 2],))
        # Whatever became of each: either it is refused with an id, or all of it adds up.
        for object_ in self.objects().values():
            if object_["verdict"] == "ORIGINAL_REFUSED":
                self.assertTrue(object_.get("objectViolations") or
                                self.daemon.json("coverage").get("gaps"), object_)
        for row in self.daemon.json("coverage")["coverage"]:
            refused = sum(int(r["sites"]) for r in row.get("refused", []))
            self.assertEqual(int(row.get("requested", 0)),
                             int(row.get("attached", 0)) + int(row.get("degraded", 0)) + refused)

    def test_another_processors_object(self):
        self.assert_same("wrong ISA", OTHER_ISA.read_bytes())
        coverage = self.daemon.json("coverage", ok=(3,))
        self.assertEqual({g["kind"] for g in coverage["gaps"]}, {"GAP_PATCHED_LOAD_FAILED"})
        self.assertEqual(int(coverage["total"].get("attached", 0)), 0, "it was never in place")
        self.assertIn("RJD-G007", {r["constraintId"] for r in coverage["total"]["refused"]})
        self.assertIn("RJD-G007", self.daemon.ctl("why-not-attached", "loader_kernel").stdout)
        self.assertEqual({o["verdict"] for o in self.objects().values()}, {"ORIGINAL_REFUSED"})

    def test_too_large(self):
        file = self.folder / "large"
        shutil.copy(GOOD, file)
        os.truncate(file, 300 * MIB)  # sparse
        for path in ("memory", "file"):
            begin = time.monotonic()
            plain = harness.run(loader(file, "--path", path), env=harness.softgpu_env())
            middle = time.monotonic()
            under = self.daemon.run_program(*loader(file, "--path", path))
            added = time.monotonic() - middle - (middle - begin)
            print(f"300 MiB by {path}: {added:.2f} s added")
            self.assertEqual(outcome(under), outcome(plain))
        listed = list(self.objects().values())
        self.assertEqual([o["objectViolations"][0]["constraintId"] for o in listed], ["RJD-O002"])
        self.assertEqual(int(listed[0]["size"]), 300 * MIB)
        self.assertIn("RJD-O002", self.daemon.ctl("coverage", check=False).stdout)
        self.assertEqual(int(self.daemon.json("status").get("uploadedBytes", 0)), 0)
        self.assertLess(resident_peak(self.daemon.process.pid), 200 * MIB)


class NoDaemon(unittest.TestCase):
    """The same program, with a daemon that does not do its part."""

    DEADLINE_MS = 600

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.gaps = self.folder / "gaps.jsonl"
        self.large = self.folder / "large"

    def environment(self, agent_socket):
        return harness.softgpu_env(extra={
            "RJDBI_SOCKET": str(agent_socket), "RJDBI_GAP_FILE": str(self.gaps),
            "RJDBI_DEADLINE_MS": str(self.DEADLINE_MS), "LD_PRELOAD": str(harness.AGENT),
            "HSA_TOOLS_LIB": str(harness.AGENT)})

    def make_large(self, size):
        shutil.copy(GOOD, self.large)
        os.truncate(self.large, size)

    def assert_bounded(self, agent_socket, kinds, repeat=20):
        """Many loads: correct, and one deadline of waiting altogether."""
        command = loader(GOOD, "--repeat", str(repeat))
        begin = time.monotonic()
        plain = harness.run(command, env=harness.softgpu_env())
        middle = time.monotonic()
        under = harness.run(command, env=self.environment(agent_socket), check=False)
        added = time.monotonic() - middle - (middle - begin)
        self.assertEqual(outcome(under), outcome(plain))
        self.assertLess(added, self.DEADLINE_MS / 1000 + SLACK_S)
        gaps = lines_of(self.gaps)
        self.assertEqual(len(gaps), repeat, "every load is on record")
        self.assertLessEqual({g["kind"] for g in gaps}, set(kinds), gaps[:3])
        digest = hashlib.sha256(GOOD.read_bytes()).hexdigest()
        self.assertEqual({g["sha256"] for g in gaps}, {digest})
        return added

    def test_missing(self):
        self.assert_bounded(self.folder / "nothing.sock", ["GAP_DAEMON_UNREACHABLE"])

    def test_a_socket_that_nobody_serves(self):
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(self.folder / "dead.sock"))
        dead.close()
        self.assert_bounded(self.folder / "dead.sock", ["GAP_DAEMON_UNREACHABLE"])

    def test_rjctl_run_warns_and_runs(self):
        for ours, run_options in ([], []), ([], ["--report"]), (["--output", "json"], []):
            command = [harness.RJCTL, "--socket", self.folder / "c.sock", *ours, "run", *run_options,
                       "--agent-socket", self.folder / "a.sock", "--", *loader(GOOD)]
            result = harness.run(command, env=self.environment("ignored"), check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("PASS", result.stdout)
            self.assertIn("warning: no rjdbid answers on", result.stderr)
        self.assertEqual([g["kind"] for g in lines_of(self.gaps)], ["GAP_DAEMON_UNREACHABLE"] * 3)

    @contextlib.contextmanager
    def garbage_server(self, behave):
        path = self.folder / "garbage.sock"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(16)
        held, stop = [], threading.Event()

        def serve():
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                with contextlib.suppress(OSError):
                    behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            for connection in held:
                connection.close()
            thread.join(10)

    def test_something_else_answers(self):
        noise = random.Random(3).randbytes(1 << 16)
        settings = struct.pack(">I", 0)[1:] + b"\x04\x00" + struct.pack(">I", 0)
        behaviours = {
            "closes": lambda c: c.close(),
            "is silent": lambda c: None,
            "noise": lambda c: c.sendall(noise),
            "http/1.1": lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
            "http/2 without an answer": lambda c: c.sendall(settings),
            "a frame that never ends": lambda c: c.sendall(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"),
            "settings, then noise": lambda c: c.sendall(settings + noise),
        }
        for name, behave in behaviours.items():
            with self.subTest(name), self.garbage_server(behave) as path:
                self.gaps.unlink(missing_ok=True)
                added = self.assert_bounded(path, ["GAP_DAEMON_UNREACHABLE", "GAP_PROTOCOL_ERROR",
                                                   "GAP_DEADLINE_EXCEEDED"])
                print(f"{name}: {added:.2f} s added to 20 loads")
            (self.folder / "garbage.sock").unlink(missing_ok=True)

    def test_stopped(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            daemon.process.send_signal(signal.SIGSTOP)
            try:
                self.assert_bounded(daemon.agent_socket,
                                    ["GAP_DEADLINE_EXCEEDED", "GAP_DAEMON_UNREACHABLE"])
            finally:
                daemon.process.send_signal(signal.SIGCONT)

    def test_stopped_and_back(self):
        """Gaps of the outage reach the daemon when it goes on."""
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            daemon.process.send_signal(signal.SIGSTOP)
            program = subprocess.Popen(loader(GOOD, "--repeat", "400"), text=True,
                                       env=self.environment(daemon.agent_socket),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                wait_for(lambda: lines_of(self.gaps), "a gap")
            finally:
                daemon.process.send_signal(signal.SIGCONT)
            out, err = program.communicate(timeout=240)
            self.assertEqual(program.returncode, 0, err)
            self.assertIn("PASS", out)
            gaps = daemon.json("coverage", ok=(0, 3, 4)).get("gaps", [])
            self.assertEqual(len(gaps), len(lines_of(self.gaps)))
            self.assertIn("gap[RJD-G00", daemon.ctl("coverage", check=False).stdout)

    def test_killed_during_an_upload(self):
        self.make_large(200 * MIB)
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            environment = self.environment(daemon.agent_socket)
            environment["RJDBI_DEADLINE_MS"] = "20000"
            program = subprocess.Popen(loader(self.large, "--repeat", "2"), text=True,
                                       env=environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            wait_for(lambda: int(daemon.json("status").get("uploadedBytes", 0)) > 0, "an upload")
            daemon.stop(signal.SIGKILL)
            daemon.start()
            out, err = program.communicate(timeout=240)
            self.assertEqual(program.returncode, 0, err)
            self.assertIn("PASS", out)
            gaps = lines_of(self.gaps)
            self.assertTrue(gaps, "the killed admission is not on record")
            self.assertLessEqual({g["kind"] for g in gaps},
                                 {"GAP_DAEMON_UNREACHABLE", "GAP_PROTOCOL_ERROR",
                                  "GAP_DEADLINE_EXCEEDED"})
            reported = daemon.json("coverage", ok=(0, 3, 4)).get("gaps", [])
            self.assertEqual(len(reported), len(gaps), "the daemon that came back was told")
            # And it serves the next process, with the attachment of before.
            daemon.run_program(*loader(GOOD))
            self.assertGreater(int(daemon.json("coverage")["total"]["attached"]), 0)


class Surroundings(unittest.TestCase):
    """Environment variables and limits that nobody should set."""

    def test_the_program_does_not_notice(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            agent = {"RJDBI_SOCKET": str(daemon.agent_socket), "LD_PRELOAD": str(harness.AGENT),
                     "HSA_TOOLS_LIB": str(harness.AGENT)}
            fifo, status = daemon.folder / "fifo", daemon.folder / "status"
            os.mkfifo(fifo)
            shell = ["/bin/sh", "-c"]
            cases = [([], {"RJDBI_GAP_FILE": str(f), "RJDBI_SOCKET": "/no/such.sock"})
                     for f in ("/dev/full", "/", fifo, "/no/such/folder/x", "x" * 5000)]
            cases += [([], {"RJDBI_DEADLINE_MS": v})
                      for v in ("", "abc", "-1", "0", "9" * 30, "1", "1e3")]
            cases += [([], {"RJDBI_SOCKET": v})
                      for v in ("x" * 200, "/", "/dev/null", "relative.sock", " ", "@abstract")]
            cases += [(shell + [f'"$@" {closed}; echo $? >{status}', "sh"], {})
                      for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")]
            cases += [(shell + [f'ulimit -n {n}; exec "$@"', "sh"], {}) for n in (6, 7, 8, 10, 12)]
            cases += [(shell + ['ulimit -c 0; ulimit -f 0; exec "$@"', "sh"],
                       {"RJDBI_GAP_FILE": str(daemon.folder / "gaps"), "RJDBI_SOCKET": "/no/such.sock"})]
            for prefix, variables in cases:
                with self.subTest(prefix=prefix, variables=variables):
                    command = [*prefix, *loader(GOOD)]
                    plain = harness.run(command, env=harness.softgpu_env(), check=False)
                    ended = status.read_text() if status.exists() else ""
                    under = harness.run(command, env=harness.softgpu_env(extra={**agent, **variables}),
                                        check=False)
                    self.assertEqual(outcome(under), outcome(plain))
                    self.assertEqual(status.read_text() if status.exists() else "", ended)


class Cache(unittest.TestCase):
    def test_a_known_object_is_not_sent_again(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            daemon.run_program(*loader(GOOD))
            first = daemon.json("status")
            self.assertEqual(int(first["uploadedBytes"]), GOOD.stat().st_size)
            daemon.run_program(*loader(GOOD, "--repeat", "3"))
            second = daemon.json("status")
            self.assertEqual(second["uploadedBytes"], first["uploadedBytes"])
            self.assertEqual(int(second["cacheHits"]), int(first.get("cacheHits", 0)) + 3)
            for how in (signal.SIGTERM, signal.SIGKILL):
                daemon.stop(how)
                daemon.start()
                daemon.run_program(*loader(GOOD))
                status = daemon.json("status")
                self.assertEqual(int(status.get("uploadedBytes", 0)), 0, how)
                self.assertGreater(int(status["cacheHits"]), 0)
                total = daemon.json("coverage")["total"]
                self.assertGreater(int(total["attached"]), 0)


class LongAdmission(unittest.TestCase):
    def test_does_not_hold_up_the_program_or_the_end(self):
        with harness.daemon() as daemon:
            for _ in range(120):
                daemon.attach("*", "*", "count-waves")
            begin = time.monotonic()
            out = daemon.run_program("histogram", extra={"RJDBI_DEADLINE_MS": "300"})
            self.assertIn("PASS", out.stdout)
            self.assertLess(time.monotonic() - begin, 0.3 + SLACK_S)
            self.assertEqual(daemon.stop(timeout=15), 0)
            daemon.start()
            self.assertEqual(len(daemon.json("status")["attachments"]), 120)


class StateFolder(unittest.TestCase):
    """No room, or no right, to keep anything."""

    @contextlib.contextmanager
    def mounted(self, options):
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder:
            folder = pathlib.Path(folder)
            daemon = harness.Daemon(folder)
            harness.run(["mount", "-t", "tmpfs", "-o", options, "none", daemon.state])
            try:
                yield daemon
                daemon.stop()
            finally:
                if daemon.process:
                    daemon.stop(signal.SIGKILL)
                harness.run(["umount", daemon.state])

    def assert_serves(self, daemon, note):
        daemon.attach("*", "*", "count-waves")
        for _ in range(2):
            self.assertIn("PASS", daemon.run_program(*loader(GOOD)).stdout)
        report = daemon.json("report")
        self.assertGreater(sum(int(c.get("count", 0)) for c in report["counts"]), 0)
        status = daemon.json("status")
        self.assertRegex(status.get("stateNote", ""), note)
        self.assertIn("warning: ", daemon.ctl("status").stdout)
        self.assertIn("not survive a restart", daemon.log.read_text())
        self.assertEqual(daemon.json("detach", "--all"), {"detached": ["a1"]})

    def test_full_disk(self):
        with self.mounted("size=64k") as daemon:
            (daemon.state / "filler").write_bytes(bytes(64 << 10))
            # Room for the lock's inode, not for contents.
            self.assert_serves(daemon.start(), "space|restart")

    def test_disk_that_fills_up(self):
        # Room for the database of records and a few decisions.
        with self.mounted("size=1m") as daemon:
            daemon.start()
            with contextlib.suppress(OSError):
                (daemon.state / "filler").write_bytes(bytes(1 << 20))
            self.assert_serves(daemon, "No space left on device")
            (daemon.state / "filler").unlink()
            daemon.attach("*", "*", "nop")
            daemon.run_program(*loader(GOOD))
            self.assertEqual(daemon.json("status").get("stateNote", ""), "", "there is room again")

    def test_read_only(self):
        with self.mounted("size=1m") as daemon:
            harness.run(["mount", "-o", "remount,ro", daemon.state])
            self.assert_serves(daemon.start(), "cannot be used")

    def test_file_size_limit(self):
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder:
            daemon = harness.Daemon(folder)
            daemon.start()
            try:
                resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (64, 64))
                daemon.log.write_text("")  # the limit holds for its log, too
                daemon.attach("*", "*", "count-waves")
                self.assertIn("PASS", daemon.run_program(*loader(GOOD)).stdout)
                self.assertGreater(int(daemon.json("coverage")["total"]["attached"]), 0)
                self.assertRegex(daemon.json("status")["stateNote"], "File too large")
            finally:
                self.assertEqual(daemon.stop(), 0)


class Names(unittest.TestCase):
    """Names of files and arguments are bytes; the protocol's strings are UTF-8."""

    def test_not_utf8(self):
        with harness.daemon() as daemon:
            daemon.attach("*", "*", "count-waves")
            folder = os.fsencode(daemon.folder)
            program = folder + b"/pro\xff\xc3gram\x80"
            code_object = folder + b"/obj\xed\xa0\x80\xf8\n\x1b[31m"
            shutil.copy(LOADER, program)
            shutil.copy(GOOD, code_object)
            for path in ("memory", "file", "offset"):
                command = [program, "--code-object", code_object, "--path", path]
                result = subprocess.run(
                    [harness.RJCTL, "--socket", daemon.control_socket, "run", "--agent-socket",
                     daemon.agent_socket, "--", *command],
                    env=daemon.env(), capture_output=True, timeout=120)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(b"PASS", result.stdout)
            report = daemon.json("report")
            self.assertEqual(report["coverage"].get("gaps", []), [])
            self.assertEqual(len({(c["sessionId"], c["loadId"]) for c in report["counts"]}), 3)
            self.assertGreater(sum(int(c.get("count", 0)) for c in report["counts"]), 0)
            sessions = daemon.json("status")["sessions"]
            self.assertEqual([s["executable"].split("/")[-1] for s in sessions], ["pro??gram?"] * 3)
            for verb in ("status", "code-objects", "coverage", "report"):
                printed = daemon.ctl(verb, check=False).stdout
                self.assertNotRegex(printed, "[\x00-\x09\x0b-\x1f]", "control characters of a name")


if __name__ == "__main__":
    unittest.main(verbosity=2)
