#!/usr/bin/env python3
"""What was collected from real HIP programs, as people read it: every export against the
JSON report, the page in a real browser, and `rjctl top` beside a program that runs.

Usage: reading_test.py TARGET CLANG BROWSER   (environment: see harness.py)
"""
import collections
import contextlib
import csv
import fcntl
import gzip
import html.parser
import io
import json
import os
import pathlib
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import harness

TARGET = CLANG = BROWSER = None
CONFIG = "report_interval_ms: 100\ntelemetry: {ring_half_bytes: 16MiB}\n"


def number(row, key):
    return int(row.get(key, 0))


def wire(data):
    """The fields of a protobuf message: number, value (an int, or bytes)."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value, at
    at = 0
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 0:
            value, at = varint(at)
        elif tag & 7 == 2:
            length, at = varint(at)
            value, at = data[at:at + length], at + length
        else:
            raise AssertionError(f"wire type {tag & 7}")
        yield tag >> 3, value


def fields(data):
    found = collections.defaultdict(list)
    for field, value in wire(data):
        found[field].append(value)
    return found


def packed(values):
    """A repeated number, packed or not."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
        else:
            numbers += [v for _, v in wire(b"".join(b"\x08" + chunk for chunk in split(value)))]
    return numbers


def split(data):
    """The varints of packed bytes."""
    start = 0
    for at, byte in enumerate(data):
        if byte < 0x80:
            yield data[start:at + 1]
            start = at + 1


class Dom(html.parser.HTMLParser):
    """What the browser made of the page."""

    def __init__(self, text):
        super().__init__()
        self.elements = []  # (name, attributes)
        self.rows = []      # of all tables: attributes, cells' texts, table's id or class
        self.texts = {}     # by id
        self.title = None
        self.path, self.cell = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append((tag, attrs))
        if tag in ("meta", "br"):
            return
        self.path.append((tag, attrs))
        if tag == "tr":
            table = [a for t, a in self.path if t == "table"][-1]
            self.rows.append((attrs, [], table.get("id") or table.get("class")))
        elif tag in ("td", "th"):
            self.rows[-1][1].append("")

    def handle_endtag(self, tag):
        while self.path and self.path.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.path and self.path[-1][0] == "title":
            self.title = data
        for tag, attrs in self.path:
            if "id" in attrs:
                self.texts[attrs["id"]] = self.texts.get(attrs["id"], "") + data
        if any(tag in ("td", "th") for tag, _ in self.path):
            self.rows[-1][1][-1] += data


def browse(page, fragment=""):
    """The page's elements once its script has run; nothing may be said on the console."""
    with tempfile.TemporaryDirectory(prefix="rjdbi-browser-") as profile:
        out = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", "--dump-dom",
             "--host-resolver-rules=MAP * ~NOTFOUND", page.as_uri() + fragment],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, check=True)
    said = [line for line in out.stderr.splitlines() if "CONSOLE" in line]
    if said:
        raise AssertionError("\n".join(said))
    dom = Dom(out.stdout)
    if dict(dom.elements[0][1]).get("data-ready") != "yes":
        raise AssertionError("the page's script did not run to its end")
    return dom


class Counted(unittest.TestCase):
    """One program, counted in several ways, and with refusals."""
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.context = harness.daemon(CONFIG)
        cls.daemon = cls.context.__enter__()
        cls.addClassCleanup(cls.context.__exit__, None, None, None)
        folder = tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        daemon = cls.daemon
        cls.waves = daemon.attach("*VectorAdd*", "memory", "count-waves")
        cls.lanes = daemon.attach("*VectorAdd*", "global", "count-lanes")
        cls.clock = daemon.attach("*VectorAdd*", "entry or global(write)", "clock")
        cls.refused = daemon.attach("*VectorAdd*", "valu", "count-waves",
                                    "--max-injected-instructions", "1")
        out = daemon.run_program("vector_add", "5000", target=TARGET, timeout=600)
        if "PASS" not in out.stdout:
            raise AssertionError(out.stdout)
        cls.report = daemon.json("report", ok=(3,))  # one attachment is refused everywhere

    def ctl(self, *arguments, ok=(0, 3, 4)):
        out = self.daemon.ctl(*arguments, check=False)
        self.assertIn(out.returncode, ok, out.stderr)
        return out

    def counts(self, attachment=None):
        """By attachment, kernel and offset."""
        return {(c["attachmentId"], c["location"]["kernel"], number(c["location"], "kernelOffset")):
                number(c, "count") for c in self.report["counts"]
                if attachment in (None, c["attachmentId"])}

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.ctl("report", "-o", "csv").stdout)))
        got = {(r["attachment"], r["kernel"], int(r["kernel_offset"])): int(r["count"]) for r in rows}
        runtime = {k: v for k, v in self.counts().items() if k[1].startswith("__amd_rocclr_")}
        self.assertEqual(got, {k: v for k, v in self.counts().items() if k not in runtime})
        texts = {(c["location"]["kernel"], number(c["location"], "kernelOffset")):
                 c["location"]["instruction"] for c in self.report["counts"]}
        for row in rows:
            self.assertEqual(row["instruction"], texts[(row["kernel"], int(row["kernel_offset"]))])
            self.assertRegex(row["code_object_sha256"], "^[0-9a-f]{64}$")

    def test_ranking(self):
        out = self.ctl("report", "--sort", "count")
        self.assertRegex(out.stderr, r"not ranked: the counts are of different things")
        out = self.ctl("report", "--sort", "count", "--attachment", self.refused)
        self.assertRegex(out.stderr, r"not ranked: \d+ of \d+ sites that were asked for are not")
        out = self.ctl("report", "--sort", "count", "--attachment", self.waves)
        self.assertNotIn("not ranked", out.stderr)
        self.assertEqual(out.returncode, 0)
        table = out.stdout.split("\n\n")[0].splitlines()
        self.assertRegex(table[0], "^RANK +ATTACHMENT")
        shown = [int(line.split()[3]) for line in table[1:]]
        self.assertEqual(shown, sorted(self.counts(self.waves).values(), reverse=True))

    def test_folded(self):
        out = self.ctl("export", "--format", "folded", ok=(2,))
        self.assertEqual(out.stdout, "")
        out = self.ctl("export", "--format", "folded", "--attachment", self.lanes)
        total = 0
        for line in out.stdout.splitlines():
            stack, count = line.rsplit(" ", 1)
            frames = stack.split(";")
            self.assertTrue(frames[0].endswith("vector_add"), frames)
            self.assertIn("VectorAdd", frames[1])
            self.assertRegex(frames[-1], r"^\+0x[0-9a-f]+ global_")
            total += int(count)
        self.assertEqual(total, sum(self.counts(self.lanes).values()))

    def test_pprof(self):
        """Read by the wire format alone, against the public format's field numbers."""
        file = self.folder / "profile.pb.gz"
        out = self.ctl("export", "--format", "pprof", "--output-file", file)
        self.assertEqual(out.stdout, "")
        profile = fields(gzip.decompress(file.read_bytes()))
        strings = [s.decode() for s in profile[6]]
        self.assertEqual(strings[0], "")
        types = [strings[fields(t)[1][0]] for t in profile[1]]
        self.assertEqual(sorted(types), ["executions", "lanes", "wavefronts"])
        functions = {fields(f)[1][0]: fields(f) for f in profile[5]}
        mappings = {fields(m)[1][0]: fields(m) for m in profile[3]}
        locations = {fields(loc)[1][0]: fields(loc) for loc in profile[4]}
        self.assertNotIn(0, set(functions) | set(mappings) | set(locations))
        self.assertEqual(len(locations), len(profile[4]))
        got = {}
        for data in profile[2]:
            sample = fields(data)
            values = packed(sample[2])
            self.assertEqual(len(values), len(types))
            frames = [locations[i] for i in packed(sample[1])]
            names = []
            for frame in frames:
                line = fields(frame[4][0])
                names.append(strings[functions[line[1][0]][2][0]])
            self.assertIn("VectorAdd", names[1])
            self.assertTrue(names[2].endswith("vector_add"))
            labels = {strings[fields(la)[1][0]]: fields(la) for la in sample[3]}
            attachment = strings[labels["attachment"][2][0]]
            self.assertGreater(labels["pid"][3][0], 0)
            self.assertEqual(len(strings[mappings[frames[0][2][0]][6][0]]), 64)
            got[(attachment, frames[0][3][0])] = sum(values)
        want = {(c["attachmentId"], number(c["location"], "codeObjectVaddr")): number(c, "count")
                for c in self.report["counts"] if number(c, "count")}
        self.assertEqual(got, want)

    def test_perfetto(self):
        file = self.folder / "trace.json"
        out = self.ctl("export", "--format", "perfetto", "--attachment", self.clock,
                       "--output-file", file)
        self.assertNotIn("have no record", out.stderr)
        trace = json.loads(file.read_text())
        events = trace["traceEvents"]
        places = collections.Counter()
        last, processes = {}, set()
        for event in events:
            self.assertIn(event["ph"], "MXi")
            self.assertIsInstance(event["pid"], int)
            self.assertIsInstance(event["tid"], int)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "thread_name"))
                if event["name"] == "process_name":
                    processes.add(event["args"]["name"])
                continue
            self.assertGreaterEqual(event["ts"], 0)
            places[event["args"]["offset"]] += 1
            if event["ph"] == "X":
                last.setdefault(event["name"].split("+", 1)[1], []).append(event["dur"])
        self.assertEqual(len(processes), 1)
        self.assertRegex(processes.pop(), r"vector_add, pid \d+, clock ")
        self.assertEqual(places, collections.Counter(
            {f"+0x{offset:x}": n for (_, _, offset), n in self.counts(self.clock).items()}))
        # From entry to store, as the report has it; what begins anew is no span.
        pairs = [p for p in self.report["clockPairs"] if p["attachmentId"] == self.clock]
        forward = [p for p in pairs if number(p["to"], "kernelOffset") > 0]
        self.assertEqual(len(last), len(forward))
        for pair in forward:
            durations = last[f"0x{number(pair['from'], 'kernelOffset'):x} to "
                             f"+0x{number(pair['to'], 'kernelOffset'):x}"]
            self.assertEqual(len(durations), number(pair, "count"))
            self.assertAlmostEqual(min(durations) * 1000, number(pair, "min"), places=3)
            self.assertAlmostEqual(max(durations) * 1000, number(pair, "max"), places=3)

    def test_page(self):
        page = self.folder / "page.html"
        out = self.ctl("report", "--html", page)
        self.assertEqual(out.stdout, "")
        text = page.read_text()
        self.assertNotIn("http://", text)
        self.assertNotIn("https://", text)
        dom = browse(page)
        total = self.report["coverage"]["total"]
        statement = next(a for t, a in dom.elements if a.get("id") == "statement")
        self.assertEqual(int(statement["data-requested"]), number(total, "requested"))
        self.assertEqual(int(statement["data-attached"]), number(total, "attached"))
        refused = sum(number(r, "sites") for r in total["refused"])
        self.assertEqual(int(statement["data-refused"]), refused)
        self.assertIn("Not ranked", dom.texts["ranking"])
        self.assertFalse([a for t, a in dom.elements if a.get("data-sort") == "count"],
                         "an order of counts is offered")
        want = {k: v for k, v in self.counts().items() if "VectorAdd" in k[1]}
        hot = {(a["data-attachment"], a["data-kernel"], int(a["data-offset"])): int(a["data-count"])
               for a, _, table in dom.rows if table == "sites" and "data-count" in a}
        self.assertEqual(hot, want)
        self.check_listing(dom, want)

    def check_listing(self, dom, want):
        """Every instruction once, in order, with its counts and refusals."""
        kernel = next(iter(want))[1]
        sites = self.daemon.json("sites", "--kernel", kernel)["sites"]
        rows = [(a, cells) for a, cells, table in dom.rows if table == "asm" and "data-offset" in a]
        self.assertEqual([(int(a["data-offset"]), cells[4]) for a, cells in rows],
                         [(number(s["location"], "kernelOffset"), s["location"]["instruction"])
                          for s in sites])
        why = self.daemon.json("why-not-attached", kernel)
        marked = {number(d["site"]["location"], "kernelOffset"):
                  d["violations"][0]["constraintId"] for d in why["decisions"]}
        self.assertGreater(len(marked), 0)
        for attributes, cells in rows:
            offset = int(attributes["data-offset"])
            if offset in marked:
                self.assertIn(marked[offset], cells[5])
                self.assertIn("refused", cells[3])
                self.assertEqual(attributes["class"], "bad")
            else:
                self.assertNotIn("refused", cells[3])
            for (_, _, at), count in want.items():
                if at == offset:
                    self.assertIn(str(count), cells[1])

    def test_page_is_sorted_where_there_is_an_order(self):
        page = self.folder / "ranked.html"
        self.ctl("report", "--html", page, "--attachment", self.waves)
        for fragment, column, down in (("#sort=count", "data-count", True),
                                       ("#sort=offset", "data-offset", True), ("", "data-count", True)):
            dom = browse(page, fragment)
            values = [int(a[column]) for a, _, table in dom.rows if table == "sites" and column in a]
            self.assertEqual(len(values), len(self.counts(self.waves)))
            self.assertEqual(values, sorted(values, reverse=down), fragment)


    def test_top_on_a_terminal(self):
        """Each table is drawn over the last one, and fits."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 9, 60, 0, 0))
        top = subprocess.Popen([str(harness.RJCTL), "--socket", str(self.daemon.control_socket),
                                "--color", "never", "top", "--interval", "0.1", "--count", "2",
                                "--attachment", self.waves], stdout=theirs)
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while data := os.read(ours, 65536):
                text += data
        os.close(ours)
        self.assertEqual(top.wait(timeout=30), 0)
        before, *screens = text.decode().split("\x1b[H\x1b[J")
        self.assertEqual((before, len(screens)), ("", 2))
        for screen in screens:
            lines = screen.replace("\r\n", "\n").split("\n")
            self.assertLessEqual(len(lines), 9)
            self.assertLessEqual(max(len(line) for line in lines), 60)
            self.assertRegex(lines[1], "^PER SECOND +COUNT")
            self.assertGreater(len(lines), 4)


class UserProbe(unittest.TestCase):
    def test_every_word_is_handed_on(self):
        """A user's probe with two words, of which the first stays 0."""
        probe = harness.BUILD / "tests/patch/probes" / f"{TARGET}.hip.15.o"
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder, \
                harness.daemon(CONFIG) as daemon:
            manifest, file = pathlib.Path(folder) / "manifest", pathlib.Path(folder) / "profile"
            manifest.write_text(harness.run(
                [harness.RJCTL, "infer", probe, "--entry", "misaligned", "--arguments",
                 "address,telemetry"]).stdout)
            daemon.ctl("attach", "--kernel", "*VectorAdd*", "--sites", "global", "--probe-object",
                       probe, "--probe-manifest", manifest)
            daemon.run_program("vector_add", "5000", target=TARGET, timeout=600)
            words = [[int(w) for w in c["words"]] for c in daemon.json("report")["counts"]]
            self.assertEqual(words, [[0, 5000]] * 3)
            rows = csv.DictReader(io.StringIO(daemon.ctl("report", "-o", "csv").stdout))
            self.assertEqual([(r["unit"], r["words"]) for r in rows],
                             [("probe:misaligned", "0 5000")] * 3)
            daemon.ctl("export", "--format", "pprof", "--output-file", file)
            profile = fields(gzip.decompress(file.read_bytes()))
            strings = [s.decode() for s in profile[6]]
            self.assertEqual([strings[fields(t)[1][0]] for t in profile[1]],
                             ["probe:misaligned", "probe:misaligned.1"])
            self.assertEqual([packed(fields(s)[2]) for s in profile[2]], [[0, 5000]] * 3)
            folded = daemon.ctl("export", "--format", "folded")
            self.assertEqual(folded.stdout, "")
            self.assertIn("3 places have further words", folded.stderr)


class Hostile(unittest.TestCase):
    def test_names_are_text(self):
        """A kernel whose name is a script: it is shown, and does not run."""
        name = "<script>document.title='run'</script><b id=x>&amp;"
        with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder, \
                harness.daemon(CONFIG) as daemon:
            source, image = pathlib.Path(folder) / "k.cl", pathlib.Path(folder) / "k.co"
            page = pathlib.Path(folder) / "page.html"
            source.write_text(f'kernel void k(global uint* p) __asm__("{name}");\n'
                              "kernel void k(global uint* p) { p[0] = 1; }\n")
            harness.run([CLANG, "-target", "amdgcn-amd-amdhsa", f"-mcpu={TARGET}", "-x", "cl",
                         "-cl-std=CL2.0", "-nogpulib", "-O2", source, "-o", image])
            daemon.attach("*", "global", "count-waves")
            harness.run([harness.RJCTL, "--socket", daemon.control_socket, "run", "--agent-socket",
                         daemon.agent_socket, "--", harness.BUILD / "tests/e2e/load_images", image],
                        env=daemon.env(target=TARGET), timeout=300)
            daemon.ctl("report", "--html", page, check=False)
            dom = browse(page)
            self.assertIn(name, dom.texts["k1"])
            self.assertIn(name, [a.get("data-kernel") for t, a in dom.elements if t == "section"])
            self.assertEqual([t for t, a in dom.elements if a.get("id") == "x"], [])
            self.assertEqual(len([t for t, _ in dom.elements if t == "script"]), 1)
            self.assertEqual(dom.title, "rjdbi report")
            for out in (daemon.ctl("export", "--format", "folded", check=False),
                        daemon.ctl("report", "-o", "csv", check=False)):
                self.assertIn(out.returncode, (0, 4), out.stderr)


class Top(unittest.TestCase):
    def top(self, daemon, *options):
        return subprocess.Popen([str(harness.RJCTL), "--socket", str(daemon.control_socket), "top",
                                 *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_rates_add_up(self):
        with harness.daemon(CONFIG) as daemon:
            daemon.attach("*work*", "global_store* or flat_store*", "count-waves")
            program = subprocess.Popen(
                [str(c) for c in (harness.RJCTL, "--socket", daemon.control_socket, "run",
                                  "--agent-socket", daemon.agent_socket, "--",
                                  harness.PROGRAMS / "live_host")],
                env=daemon.env(target=TARGET), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(program.stdout.readline(), "ready\n")
                top = self.top(daemon, "--interval", "0.3", "-o", "json")
                first = json.loads(top.stdout.readline())
                self.assertEqual(first["processes"], 1)
                program.stdin.write("run 7\n")
                program.stdin.flush()
                self.assertEqual(program.stdout.readline(), "ran 7\n")
                lines, end = [first], time.monotonic() + 60
                while time.monotonic() < end:
                    lines.append(json.loads(top.stdout.readline()))
                    if sum(number(r, "count") for r in lines[-1]["rows"]) >= 28:
                        break
                top.send_signal(signal.SIGINT)
                out, err = top.communicate(timeout=30)
                self.assertEqual((top.returncode, err), (0, ""))
                for line in out.splitlines():
                    lines.append(json.loads(line))  # none is cut short
                seen = sum(r["perSecond"] * line["seconds"] for line in lines for r in line["rows"])
                self.assertAlmostEqual(seen, 28, delta=0.1)  # 7 launches of 4 wavefronts
                self.assertEqual([r["unit"] for r in lines[-1]["rows"]], ["wavefronts"])
                table = daemon.ctl("top", "--interval", "0.05", "--count", "2")
                self.assertEqual(table.stdout.count("PER SECOND"), 2)
                self.assertIn("1 process, 0 gaps", table.stdout)
                self.assertNotIn("\x1b", table.stdout)
                program.communicate("quit\n", timeout=60)
            finally:
                program.kill()
                program.communicate()

    def test_a_daemon_that_restarts(self):
        with harness.daemon(CONFIG) as daemon:
            daemon.attach("*", "memory", "count-waves")
            top = self.top(daemon, "--interval", "0.2", "-o", "json")
            json.loads(top.stdout.readline())
            daemon.stop()
            self.assertRegex(top.stderr.readline(), r"rjdbid does not answer \(.*\); still asking")
            daemon.start()
            self.assertIn("restarted: rates begin anew", top.stderr.readline())
            json.loads(top.stdout.readline())
            top.stdout.close()
            # It ends by itself, and says nothing.
            self.assertEqual(top.wait(timeout=30), -signal.SIGPIPE)
            self.assertEqual(top.stderr.read(), "")
            top.stderr.close()
            daemon.stop()
            gone = daemon.ctl("top", "--count", "1", check=False)
            self.assertEqual(gone.returncode, 5)


if __name__ == "__main__":
    TARGET, CLANG, BROWSER = sys.argv[1:4]
    del sys.argv[1:4]
    unittest.main(verbosity=2)
