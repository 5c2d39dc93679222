"""What the end-to-end tests share: a real rjdbid on private sockets, real HIP
programs on the soft GPU, the real rjctl, and the soft GPU's execution counts.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

BUILD = pathlib.Path(os.environ["RJDBI_TEST_BUILD"])
SOURCE = pathlib.Path(os.environ["RJDBI_TEST_SOURCE"])
RJDBID = BUILD / "daemon" / "rjdbid"
RJCTL = BUILD / "clients" / "rjctl"
AGENT = BUILD / "agent" / "librjdbi-agent.so"
PROGRAMS = BUILD / "tests" / "programs"
SOFTGPU = BUILD / "softgpu"
SANITIZED = os.environ.get("RJDBI_TEST_SANITIZE", "")


def softgpu_env(target="gfx90a", seed=1, counts=None, extra=None):
    """The environment in which ROCR finds the software GPU."""
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = f"{SOFTGPU}:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    env["SOFTGPU_TARGET"] = target
    env["SOFTGPU_SEED"] = str(seed)
    if counts:
        env["SOFTGPU_COUNTS"] = str(counts)
    env.update(extra or {})
    return env


def run(command, env=None, timeout=120, check=True):
    result = subprocess.run([str(c) for c in command], env=env, timeout=timeout,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {result.returncode}\n"
                             f"stdout:\n{result.stdout}\nstderr:\n{result.stderr}")
    return result


class Daemon:
    """A real rjdbid with its own sockets and state folder."""

    def __init__(self, folder, config="", name="d"):
        self.folder = pathlib.Path(folder)
        self.agent_socket = self.folder / f"{name}-agent.sock"
        self.control_socket = self.folder / f"{name}-control.sock"
        self.state = self.folder / f"{name}-state"
        self.state.mkdir(exist_ok=True)
        self.config = self.folder / f"{name}.yaml"
        self.config.write_text(config or "report_interval_ms: 100\n")
        self.log = self.folder / f"{name}.log"
        self.process = None

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [RJDBID, "--config", self.config, "--agent-socket", self.agent_socket,
                 "--control-socket", self.control_socket, "--state-dir", self.state],
                stderr=log, stdout=log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"rjdbid exited {self.process.returncode}:\n{self.log.read_text()}")
            if self.control_socket.exists() and self.ctl("status", check=False).returncode == 0:
                return self
            time.sleep(0.02)
        raise AssertionError(f"rjdbid did not become ready:\n{self.log.read_text()}")

    def stop(self, how=signal.SIGTERM, timeout=20):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout)
        return self.process.returncode if self.process else None

    def env(self, **kwargs):
        env = softgpu_env(**kwargs)
        env["RJDBI_SOCKET"] = str(self.agent_socket)
        env["RJDBI_CONTROL_SOCKET"] = str(self.control_socket)
        env.setdefault("RJDBI_DEADLINE_MS", "120000")  # a busy machine is no failure here
        return env

    def ctl(self, *arguments, check=True, timeout=120, env=None):
        return run([RJCTL, "--socket", self.control_socket, *arguments],
                   check=check, timeout=timeout, env=env)

    def json(self, *arguments, ok=(0, 4)):
        result = self.ctl(*arguments, "--output", "json", check=False)
        if result.returncode not in ok:
            raise AssertionError(f"rjctl {arguments}: exit {result.returncode}\n{result.stdout}\n{result.stderr}")
        return json.loads(result.stdout)

    def attach(self, kernel, sites, probe, *options):
        reply = self.json("attach", "--kernel", kernel, "--sites", sites, "--probe", probe, *options)
        return reply["attachment"]["id"]

    def run_program(self, program, *arguments, check=True, timeout=300, **kwargs):
        """A HIP program under `rjctl run`, on the soft GPU."""
        return run([RJCTL, "--socket", self.control_socket, "run", "--agent-socket", self.agent_socket,
                    "--", PROGRAMS / program, *arguments],
                   env=self.env(**kwargs), check=check, timeout=timeout)


@contextlib.contextmanager
def daemon(config=""):
    with tempfile.TemporaryDirectory(prefix="rjdbi-e2e-") as folder:
        d = Daemon(folder, config)
        d.start()
        try:
            yield d
        finally:
            d.stop(signal.SIGTERM)
