"""Reads the soft GPU's journal (SOFTGPU_COUNTS): executions at each address.

The journal's lines are described in tests/softgpu/thunk/counts.h.
"""
import collections


class GroundTruth:
    def __init__(self, path):
        self.kernels = {}  # id -> name
        self.entries = {}  # kernel name -> address of its first instruction
        self.dispatches = 0
        # (kernel name, address within the code object) -> [waves, lanes]
        self.counts = collections.defaultdict(lambda: [0, 0])
        with open(path) as journal:
            for line in journal:
                self._read(line.split())
        if self.dispatches == 0:
            raise AssertionError(f"{path}: no dispatch was recorded")

    def _read(self, words):
        if words[0] == "kernel":
            fields = dict(word.split("=", 1) for word in words[2:])
            self.kernels[words[1]] = fields["name"]
            self.entries[fields["name"]] = int(fields["entry"], 16)
        elif words[0] == "dispatch":
            self.dispatches += 1
        elif words[0] == "pc":
            _, kernel, _, address, waves, lanes = words
            count = self.counts[(self.kernels[kernel], int(address, 16))]
            count[0] += int(waves)
            count[1] += int(lanes)

    def waves(self, kernel, address):
        return self.counts[(kernel, address)][0] if (kernel, address) in self.counts else 0

    def lanes(self, kernel, address):
        return self.counts[(kernel, address)][1] if (kernel, address) in self.counts else 0
