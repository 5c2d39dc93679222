#!/usr/bin/env python3
"""Attach to a HIP program that runs, count, detach: it computes the same all the time,
its variables are shared by both forms of its kernel, and exactly the launches between
attaching and detaching are counted."""
import os
import signal
import subprocess
import sys
import time
import unittest

import harness

TARGET = sys.argv.pop(1)
ITEMS, WIDTH = 256, 64  # of one launch: see tests/programs/live_host.hip


class Host:
    """The program, told what to do next."""

    def __init__(self, daemon, run_options=(), agent=True):
        command = [harness.PROGRAMS / "live_host"]
        if agent:
            command = [harness.RJCTL, "--socket", daemon.control_socket, "run", "--agent-socket",
                       daemon.agent_socket, *run_options, "--", *command]
        self.process = subprocess.Popen([str(c) for c in command], env=daemon.env(target=TARGET),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        self.expect("ready")

    def expect(self, line):
        got = self.process.stdout.readline()
        if got != line + "\n":
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"{line!r} expected, got {got!r} {out!r}, {err}")

    def launch(self, n):
        self.process.stdin.write(f"run {n}\n")
        self.expect(f"ran {n}")

    def quit(self):
        out, err = self.process.communicate("quit\n", timeout=60)
        if self.process.returncode != 0 or out != "PASS\n":
            raise AssertionError(f"exit {self.process.returncode}: {out!r} {err}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.quit()
        else:
            self.process.kill()
            self.process.communicate()


def counts(daemon, attachment):
    """Of the stores of `work`: by offset."""
    report = daemon.json("report", "--attachment", attachment)
    places = {}
    for count in report.get("counts", []):
        if count["location"]["kernel"].startswith("_Z4work"):
            offset = count["location"].get("kernelOffset", "0")
            places[offset] = places.get(offset, 0) + int(count.get("count", 0))
    return places


class Live(unittest.TestCase):
    maxDiff = None

    def in_effect(self, reply, processes=1):
        self.assertEqual(reply.get("live", {}), {"current": processes}, reply)

    def settled(self, daemon, attachment, total):
        """The one store's count once the agent has reported it."""
        end = time.monotonic() + 20
        while True:
            got = counts(daemon, attachment)
            if list(got.values()) == [total] or time.monotonic() > end:
                self.assertEqual(list(got.values()), [total], got)
                return
            time.sleep(0.05)

    def attach(self, daemon, sites, probe, *options):
        return daemon.json("attach", "--kernel", "work*", "--sites", sites, "--probe", probe,
                           *options)

    def test_attach_count_detach(self):
        with harness.daemon() as daemon, Host(daemon) as host:
            host.launch(3)
            reply = self.attach(daemon, "global_store* or flat_store*", "count-lanes")
            self.in_effect(reply)
            first = reply["attachment"]["id"]
            host.launch(5)
            self.settled(daemon, first, 5 * ITEMS)
            # One more, of another kind: both count from here on.
            reply = self.attach(daemon, "global_store* or flat_store*", "count-waves")
            self.in_effect(reply)
            second = reply["attachment"]["id"]
            host.launch(2)
            waves = ITEMS // (32 if TARGET == "gfx1030" else 64)
            self.settled(daemon, first, 7 * ITEMS)
            self.settled(daemon, second, 2 * waves)
            self.in_effect(daemon.json("detach", first))
            host.launch(4)
            self.settled(daemon, second, 6 * waves)
            self.settled(daemon, first, 7 * ITEMS)  # history, and no launch more
            self.in_effect(daemon.json("detach", second))
            host.launch(3)
            self.settled(daemon, second, 6 * waves)
            coverage = daemon.json("coverage", "--attachment", second)
            self.assertFalse(coverage.get("gaps"), coverage)
            self.assertGreater(int(coverage["total"]["attached"]), 0)

    def test_many_times(self):
        with harness.daemon() as daemon, Host(daemon) as host:
            for round in range(20):
                reply = self.attach(daemon, "global_store* or flat_store*", "count-lanes")
                self.in_effect(reply)
                host.launch(2)
                self.in_effect(daemon.json("detach", reply["attachment"]["id"]))
                host.launch(1)
                self.settled(daemon, reply["attachment"]["id"], 2 * ITEMS)

    def test_processes_that_do_not_match_go_on_untouched(self):
        with harness.daemon() as daemon, Host(daemon) as host:
            host.launch(1)
            reply = self.attach(daemon, "global_*", "count-waves", "--process", "another")
            self.assertNotIn("live", reply)
            host.launch(1)
            self.assertEqual(daemon.json("status")["sessions"][0]["live"], "LIVE_CURRENT")

    def test_attached_at_load_and_again_while_running(self):
        with harness.daemon() as daemon:
            at_load = self.attach(daemon, "global_store* or flat_store*", "count-lanes")
            first = at_load["attachment"]["id"]
            with Host(daemon) as host:
                host.launch(2)
                # It is in place already: nothing else is loaded for it.
                while daemon.json("status")["sessions"][0].get("live") != "LIVE_CURRENT":
                    time.sleep(0.02)
                loads = {c["loadId"] for c in daemon.json("report")["counts"]}
                self.assertEqual(len(loads), 1, loads)
                reply = self.attach(daemon, "global_store* or flat_store*", "count-waves")
                self.in_effect(reply)
                host.launch(3)
                self.settled(daemon, first, 5 * ITEMS)
                detached = daemon.json("detach", reply["attachment"]["id"])
                self.in_effect(detached)
                host.launch(4)
                self.settled(daemon, first, 9 * ITEMS)
                # The kernel was loaded with it in place, and is the application's own again.
                self.in_effect(daemon.json("detach", first))
                host.launch(5)
                self.settled(daemon, first, 9 * ITEMS)

    def test_a_second_process_of_the_same_object(self):
        with harness.daemon() as daemon, Host(daemon) as host, Host(daemon) as other:
            reply = self.attach(daemon, "global_store* or flat_store*", "count-lanes")
            self.in_effect(reply, processes=2)
            host.launch(1)
            other.launch(2)
            self.settled(daemon, reply["attachment"]["id"], 3 * ITEMS)

    def test_what_was_loaded_for_an_earlier_daemon_is_said(self):
        """A new daemon cannot give kernels back that an old one has patched."""
        with harness.daemon() as daemon:
            at_load = self.attach(daemon, "global_store* or flat_store*", "count-lanes")
            with Host(daemon) as host:
                host.launch(1)
                daemon.stop(signal.SIGKILL)
                daemon.start()
                end = time.monotonic() + 90
                while not any(s.get("live") == "LIVE_CURRENT"
                              for s in daemon.json("status").get("sessions", [])):
                    self.assertLess(time.monotonic(), end, daemon.json("status"))
                    time.sleep(0.1)
                reply = daemon.json("detach", at_load["attachment"]["id"])
                self.assertEqual(reply.get("live"), {"current": 1, "loadedBefore": 1})
                host.launch(2)

    def test_the_daemon_goes_and_comes_back(self):
        """Attachments survive; the process goes on, and follows again. As soon as it has
        connected again it is waited for."""
        with harness.daemon() as daemon, Host(daemon) as host:
            host.launch(1)
            kept = self.attach(daemon, "global_store* or flat_store*", "count-waves")
            self.in_effect(kept)
            daemon.stop(signal.SIGKILL)
            host.launch(2)
            daemon.start()
            end = time.monotonic() + 90
            while not daemon.json("status").get("sessions"):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            reply = self.attach(daemon, "global_store* or flat_store*", "count-lanes",
                                "--wait", "60")
            self.in_effect(reply)
            host.launch(3)
            self.settled(daemon, reply["attachment"]["id"], 3 * ITEMS)
            session = daemon.json("status")["sessions"][0]
            # The program's object is patched, the runtime's own is not.
            self.assertEqual((session["codeObjects"], session["patched"]), ("2", "1"), session)
            # What went wrong meanwhile has been repeated.
            self.assertFalse(daemon.json("coverage").get("gaps"))

    def test_a_stopped_process_is_pending(self):
        with harness.daemon() as daemon, Host(daemon) as host:
            host.launch(1)
            pid = int(daemon.json("status")["sessions"][0]["pid"])
            os.kill(pid, signal.SIGSTOP)
            try:
                reply = self.attach(daemon, "global_store* or flat_store*", "count-lanes",
                                    "--wait", "1")
                self.assertEqual(reply["live"], {"applying": 1})
                first = reply["attachment"]["id"]
                coverage = daemon.json("coverage", ok=(3,))
                self.assertEqual(coverage["pendingProcesses"], {first: 1})
                said = daemon.ctl("report", check=False).stderr
                self.assertIn(f"{first} is pending in 1 process", said)
                self.assertNotIn("vacuous", said)
            finally:
                os.kill(pid, signal.SIGCONT)
            reply = self.attach(daemon, "global_store* or flat_store*", "count-waves")
            self.in_effect(reply)
            self.assertNotIn("pendingProcesses", daemon.json("coverage"))
            host.launch(2)
            self.settled(daemon, first, 2 * ITEMS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
