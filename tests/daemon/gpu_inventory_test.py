#!/usr/bin/env python3
"""rjdbid's GPU inventory, with the real ROCm SMI library over a sysfs that has GPUs.

Usage: gpu_inventory_test.py RJDBID RJCTL

ROCm SMI reads /sys; no path of it can be configured. The test therefore runs
rjdbid in a mount namespace of its own whose /sys holds what amdgpu and amdkfd
would put there (the files that SMI asks for, in the kernel's spelling).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

RJDBID, RJCTL = None, None

KFD_NODE = """cpu_cores_count {cpus}
simd_count {simds}
mem_banks_count 1
caches_count 0
io_links_count 1
max_waves_per_simd 8
lds_size_in_kb 64
wave_front_size 64
array_count 8
simd_arrays_per_engine 1
cu_per_simd_array 14
simd_per_cu 4
gfx_target_version {version}
vendor_id 4098
device_id 29708
location_id {location}
domain {domain}
drm_render_minor 128
hive_id 0
unique_id 0
"""
LINK = """type 2
version_major 0
version_minor 0
node_from {0}
node_to {1}
weight 20
min_latency 0
max_latency 0
min_bandwidth 312
max_bandwidth 16000
recommended_transfer_size 0
flags 1
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def add_node(root, index, gpu_id, name, **properties):
    node = root / f"class/kfd/kfd/topology/nodes/{index}"
    write(node / "gpu_id", f"{gpu_id}\n")
    write(node / "name", f"{name}\n")
    write(node / "properties", KFD_NODE.format(**properties))
    peer = 1 if index == 0 else 0
    write(node / "io_links/0/properties", LINK.format(index, peer))


def add_gpu(root, index, address, version, name):
    device = root / "devices/pci0000:00" / address
    write(device / "vendor", "0x1002\n")
    write(device / "device", "0x740c\n")
    write(device / "subsystem_vendor", "0x1002\n")
    write(device / "subsystem_device", "0x0b0c\n")
    write(device / "vbios_version", "113-D65201-046\n")
    monitor = device / f"hwmon/hwmon{index}"
    write(monitor / "name", "amdgpu\n")
    write(monitor / "in0_label", "vddgfx\n")
    write(monitor / "temp1_label", "edge\n")
    link(device / f"drm/card{index}/device", f"../../../{address}")
    link(root / f"class/drm/card{index}",
         f"../../devices/pci0000:00/{address}/drm/card{index}")
    domain, bus, slot = address.split(":")
    device_number, function = slot.split(".")
    location = int(bus, 16) << 8 | int(device_number, 16) << 3 | int(function)
    add_node(root, index + 1, 1000 + index, name, cpus=0, simds=440, version=version,
             location=location, domain=int(domain, 16))


def make_sysfs(root):
    add_node(root, 0, 0, "", cpus=64, simds=0, version=0, location=0, domain=0)
    add_gpu(root, 0, "0000:c1:00.0", 90010, "aldebaran")
    add_gpu(root, 1, "0001:03:00.0", 100300, "navi21")
    (root / "module/amdgpu").mkdir(parents=True)
    (root / "class/hwmon").mkdir(parents=True)


def inside():
    """In the namespace: prints rjdbid's status as JSON."""
    subprocess.run(["mount", "-t", "tmpfs", "none", "/sys"], check=True)
    make_sysfs(pathlib.Path("/sys"))
    with tempfile.TemporaryDirectory(prefix="rjdbi-smi-") as folder:
        control = f"{folder}/control.sock"
        with open(f"{folder}/log", "w") as log:
            daemon = subprocess.Popen(
                [RJDBID, "--state-dir", f"{folder}/state", "--agent-socket", f"{folder}/agent.sock",
                 "--control-socket", control], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while not os.path.exists(control) and time.monotonic() < deadline:
                time.sleep(0.05)
            subprocess.run([RJCTL, "--socket", control, "status", "--output", "json"], check=True,
                           timeout=60)
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)


class GpuInventory(unittest.TestCase):
    def test_gpus_are_listed_with_isa_and_address(self):
        result = subprocess.run(["unshare", "--mount", "--map-root-user", sys.executable, __file__,
                                 RJDBID, RJCTL, "--inside"],
                                capture_output=True, text=True, timeout=200)
        self.assertEqual(result.returncode, 0, result.stderr)
        status = json.loads(result.stdout)
        self.assertEqual(status.get("gpuInventoryNote", ""), "")
        gpus = status["gpus"]
        self.assertEqual([gpu["isa"] for gpu in gpus], ["gfx90a", "gfx1030"])
        self.assertEqual([gpu["pciAddress"] for gpu in gpus], ["0000:c1:00.0", "0001:03:00.0"])
        self.assertEqual([gpu.get("index", 0) for gpu in gpus], [0, 1])


if __name__ == "__main__":
    RJDBID, RJCTL, *rest = sys.argv[1:]
    if rest == ["--inside"]:
        inside()
    else:
        unittest.main(argv=sys.argv[:1], verbosity=2)
