#!/usr/bin/env python3
"""Trace records of real HIP programs, from the device to rjctl, against what the
soft GPU itself counted: each event is a record with the right content, or is counted
as lost, where it was lost.

Usage: records_test.py TARGET   (environment: see harness.py)
"""
import collections
import csv
import io
import json
import pathlib
import sys
import tempfile
import unittest

import harness
from ground_truth import GroundTruth

TARGET = None
ROOMY = "report_interval_ms: 100\ntelemetry: {ring_half_bytes: 16MiB}\n"


def number(row, key):
    return int(row.get(key, 0))


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="rjdbi-e2e-")
        self.addCleanup(folder.cleanup)
        self.counts = pathlib.Path(folder.name) / "counts"

    def run_traced(self, daemon, program, *arguments, extra=None):
        """Runs the program; the soft GPU's counts, of the plain run's addresses."""
        plain = self.counts.with_suffix(".plain")
        harness.run([harness.PROGRAMS / program, *arguments], timeout=600,
                    env=harness.softgpu_env(target=TARGET, counts=plain))
        out = daemon.run_program(program, *arguments, target=TARGET, counts=self.counts,
                                 timeout=900, extra=extra)
        self.assertIn("PASS", out.stdout)
        return GroundTruth(plain)

    def check_books(self, report):
        """Every number of the report is accounted for. Returns events per site."""
        events, read_by_load, sites = {}, collections.Counter(), 0
        received_by_load = collections.Counter()
        for row in report["counts"]:
            if "records" not in row:
                continue
            sites += 1
            r = row["records"]
            self.assertTrue(row.get("final"), row)
            self.assertEqual(number(row, "count"), number(r, "deviceFull") + number(r, "read"), row)
            self.assertEqual(number(r, "received"),
                             number(r, "stored") + number(r, "rateLimited") + number(r, "dropped"), row)
            self.assertGreaterEqual(number(r, "read"), number(r, "received"), row)
            load = (row["sessionId"], row.get("loadId"))
            read_by_load[load] += number(r, "read")
            received_by_load[load] += number(r, "received")
            place = row["location"]["kernel"], int(row["location"]["codeObjectVaddr"])
            events[(row["attachmentId"], *place)] = row
        self.assertGreater(sites, 0, "no site writes records")
        losses = report.get("recordLosses", [])
        self.assertEqual({(l["sessionId"], l.get("loadId")) for l in losses}, set(read_by_load))
        for l in losses:
            load = (l["sessionId"], l.get("loadId"))
            self.assertEqual(number(l, "written"), read_by_load[load], l)
            self.assertEqual(number(l, "received"), received_by_load[load] + number(l, "rejected"), l)
            self.assertEqual(number(l, "written"), number(l, "received") + number(l, "agentQueue") +
                             number(l, "undelivered"), l)
            for key in ("onTheWay", "unfinishedBytes", "rejected"):
                self.assertEqual(number(l, key), 0, l)
        return events

    def check_events(self, events, truth):
        """Each site's events are what the soft GPU counted there. Returns their sum."""
        total = 0
        for (_, kernel, address), row in events.items():
            self.assertEqual(number(row, "count"), truth.waves(kernel, address), row)
            total += number(row, "count")
        self.assertGreater(total, 0)
        return total

    def records(self, daemon, *options):
        out = daemon.ctl("records", "-o", "json", *options)
        return [json.loads(line) for line in out.stdout.splitlines()]

    def test_every_event_is_a_record(self):
        with harness.daemon(ROOMY) as daemon:
            trace = daemon.attach("*", "memory", "trace-exec")
            truth = self.run_traced(daemon, "vector_add", "20000")
            report = daemon.json("report")
            events = self.check_books(report)
            total = self.check_events(events, truth)
            records = self.records(daemon)
            self.assertEqual(len(records), total)
            by_site = collections.defaultdict(list)
            for record in records:
                by_site[(record["kernel"], number(record, "kernelOffset"))].append(record)
            for (_, kernel, address), row in events.items():
                own = by_site[(kernel, number(row["location"], "kernelOffset"))]
                self.assertEqual(len(own), number(row, "count"))
                self.assertEqual(number(row["records"], "stored"), len(own))
                for record in own:
                    self.assertEqual(bin(int(record["exec"], 16)).count("1"),
                                     number(record, "activeLanes"))
                    self.assertEqual(record["attachmentId"], trace)
                    self.assertEqual(record["instruction"], row["location"]["instruction"])
                self.assertEqual(sum(number(r, "activeLanes") for r in own),
                                 truth.lanes(kernel, address))
                # 20000 elements in groups of 256: each workgroup is there.
                known = [tuple(r["workgroup"]) for r in own if "workgroup" in r]
                if kernel.startswith("_Z9VectorAdd") and known and len(own) > 100:
                    self.assertEqual(len(known), len(own))
                    # A kernel of one dimension is not told the other two.
                    not_told = 0xffffffff
                    self.assertEqual(sorted(set(known)),
                                     [(x, not_told, not_told) for x in range(79)])
            self.check_tables(daemon, records)

    def check_tables(self, daemon, records):
        table = daemon.ctl("records").stdout.splitlines()
        self.assertEqual(len(table), len(records) + 1)
        self.assertRegex(table[0], r"^RECEIVED +PID +KERNEL +OFFSET +INSTRUCTION +EXEC")
        rows = list(csv.DictReader(io.StringIO(daemon.ctl("records", "-o", "csv").stdout)))
        self.assertEqual(len(rows), len(records))
        for row, record in zip(rows, records):
            self.assertEqual(row["exec"], record["exec"])
            self.assertEqual(row["kernel"], record["kernel"])
            self.assertEqual(row["instruction"], record["instruction"])
        self.assertEqual(self.records(daemon, "--last", "7"), records[-7:])
        kernel = records[0]["kernel"]
        self.assertEqual(self.records(daemon, "--kernel", kernel),
                         [r for r in records if r["kernel"] == kernel])
        self.assertEqual(daemon.ctl("records", "--attachment", "a99", check=False).returncode, 2)

    def test_addresses(self):
        n = 20000
        with harness.daemon(ROOMY) as daemon:
            daemon.attach("*VectorAdd*", "global", "trace-address")
            truth = self.run_traced(daemon, "vector_add", str(n))
            report = daemon.json("report")
            events = self.check_books(report)
            self.check_events(events, truth)
            by_site = collections.defaultdict(list)
            for record in self.records(daemon):
                by_site[number(record, "kernelOffset")].append(record)
            arrays = set()
            for row in events.values():
                addresses = sorted(int(lane["value"], 16)
                                   for record in by_site[number(row["location"], "kernelOffset")]
                                   for lane in record.get("lanes", []))
                # Each element once, one behind the other.
                self.assertEqual(len(addresses), n, row)
                self.assertEqual(addresses, list(range(addresses[0], addresses[0] + 4 * n, 4)))
                arrays.add(addresses[0])
            self.assertEqual(len(arrays), 3)  # a, b and c
            summaries = report["recordSummaries"]
            self.assertEqual(len(summaries), 3)
            wave = 64 if TARGET.startswith("gfx9") else 32
            for s in summaries:
                self.assertEqual(s["analysed"], s["events"])
                self.assertEqual(s["strides"], [{"stride": "4", "records": s["withAddresses"]}])
                # Contiguous words of arrays that begin at a line.
                self.assertEqual(-(-4 * n // 64), int(s["lines64"]), s)
                self.assertEqual(max(l["lanes"] for l in s["lanes"]), wave)
            table = daemon.ctl("report").stdout
            self.assertRegex(table, r"64B LINES")
            self.assertNotIn("not ranked", table)

    def test_a_small_ring_loses_and_counts(self):
        config = "report_interval_ms: 100\ntelemetry: {ring_half_bytes: 4KiB}\n"
        with harness.daemon(config) as daemon:
            daemon.attach("*", "valu", "trace-exec")
            truth = self.run_traced(daemon, "divergent", "1000")
            report = daemon.json("report")
            events = self.check_books(report)
            self.check_events(events, truth)
            full = sum(number(row["records"], "deviceFull") for row in events.values())
            stored = sum(number(row["records"], "stored") for row in events.values())
            self.assertGreater(full, 0, "the ring was never full")
            self.assertGreater(stored, 0)
            self.assertEqual(len(self.records(daemon)), stored)
            print(f"{TARGET}: {stored} records, {full} lost to a full ring", file=sys.stderr)

    def test_a_rate_and_a_bound(self):
        config = ("report_interval_ms: 100\n"
                  "telemetry: {ring_half_bytes: 16MiB, max_bytes_per_second: 40000,"
                  " max_bytes_per_attachment: 20000}\n")
        with harness.daemon(config) as daemon:
            daemon.attach("*", "valu", "trace-exec")
            truth = self.run_traced(daemon, "divergent", "600")
            report = daemon.json("report")
            events = self.check_books(report)
            self.check_events(events, truth)
            sums = collections.Counter()
            for row in events.values():
                for key in ("rateLimited", "dropped", "stored", "deviceFull"):
                    sums[key] += number(row["records"], key)
            self.assertGreater(sums["rateLimited"], 0)
            self.assertGreater(sums["dropped"], 0)
            self.assertGreater(sums["stored"], 0)
            self.assertLessEqual(sums["stored"] * 32, 20000)
            self.assertEqual(len(self.records(daemon)), sums["stored"])
            self.assertIn("not ranked", daemon.ctl("report").stdout)

    def test_a_small_queue(self):
        """A daemon that is stopped for a while: the queue overflows, and says so."""
        with harness.daemon(ROOMY) as daemon:
            daemon.attach("*", "valu", "trace-exec")
            truth = self.run_traced(daemon, "divergent", "600",
                                    extra={"RJDBI_QUEUE_BYTES": "65536"})
            events = self.check_books(daemon.json("report"))
            self.check_events(events, truth)

    def test_clock_pairs(self):
        """From the kernel's first instruction to its store: one time for each wavefront
        that stores, as long as the instructions in between (the soft GPU's clock counts
        instructions), and the same that the records say."""
        n = 5000
        with harness.daemon(ROOMY) as daemon:
            daemon.attach("*VectorAdd*", "entry or global(write)", "clock")
            truth = self.run_traced(daemon, "vector_add", str(n))
            report = daemon.json("report")
            events = self.check_books(report)
            self.check_events(events, truth)
            stored = {number(r["location"], "kernelOffset"): r for r in events.values()}
            self.assertEqual(len(stored), 2)
            entry, store = sorted(stored)
            waves = number(stored[store], "count")
            pairs = {(number(p["from"], "kernelOffset"), number(p["to"], "kernelOffset")): p
                     for p in report["clockPairs"]}
            pair = pairs[(entry, store)]
            self.assertEqual(number(pair, "count"), waves)

            last, times = {}, []
            for record in self.records(daemon):
                place = record["pid"], record["wave"]
                before = last.get(place)
                if before and (before[0], number(record, "kernelOffset")) == (entry, store):
                    times.append(number(record, "time") - before[1])
                last[place] = number(record, "kernelOffset"), number(record, "time")
            times.sort()
            self.assertEqual(len(times), waves)
            self.assertEqual([number(pair, k) for k in ("min", "median", "max")],
                             [times[0], times[(len(times) - 1) // 2], times[-1]])
            sites = daemon.json("sites", "--kernel", "*VectorAdd*")["sites"]
            between = [s for s in sites if entry <= number(s["location"], "kernelOffset") < store]
            self.assertGreaterEqual(times[0], len(between))
            self.assertIn("From one record of a wavefront to its next:",
                          daemon.ctl("report").stdout)

    def test_run_reports_records(self):
        with harness.daemon(ROOMY) as daemon:
            out = harness.run(
                [harness.RJCTL, "--socket", daemon.control_socket, "run", "--agent-socket",
                 daemon.agent_socket, "--attach", "kernel=*VectorAdd*,sites=global,probe=trace-exec",
                 "--report", "--", harness.PROGRAMS / "vector_add", "5000"],
                env=daemon.env(target=TARGET), timeout=600)
            self.assertIn("What the records say:", out.stdout)
            self.assertRegex(out.stdout, r"trace-exec +\d+ +\d+ +100% +0 +0 +0 +0 ")


if __name__ == "__main__":
    TARGET = sys.argv.pop(1)
    unittest.main(verbosity=2)
