"""Sites that are not plain are never called plain: over whole code objects of
shipped libraries, rjctl's classes are held against labels that come from
llvm-objdump's text and from rules written here, not from the engine's analysis.

  site_recall_test.py RJCTL EXTRACTOR OBJDUMP TARGET LIBRARY...

Each label says what a person who reads the disassembly would note: a transfer
whose target is in a register, a branch, a barrier, an instruction that reads the
program counter, a clause and what it covers, the program's end, bytes that are no
instruction.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

# Objects of one library that are looked at: enough for every label, in a minute.
OBJECTS = 24
MOST_BYTES = 2_000_000

LABELS = [
    ("indirect transfer", re.compile(r"s_(setpc|swappc|rfe|cbranch_[gi]_fork|setpc_b64)\w*$")),
    ("branch", re.compile(r"s_(branch|cbranch_\w+|call_b64)$")),
    ("barrier", re.compile(r"s_barrier\w*$")),
    ("PC-relative", re.compile(r"s_getpc_b64$")),
    ("program end", re.compile(r"s_endpgm\w*$")),
    ("undecodable", re.compile(r"\.long$|<unknown>$|v_illegal$")),
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def labelled(objdump, path, processor):
    """address -> set of labels, of everything that is not plain."""
    out = {}
    covered = 0  # instructions that a clause still covers
    text = run(objdump, "-d", f"--mcpu={processor}", path)
    for line in text.splitlines():
        # "\ts_nop 0    // 000000001900: BF800000"
        match = re.match(r"\s+(\S+)(.*?)//\s*([0-9A-F]+):", line)
        if not match:
            if line.endswith(">:"):
                covered = 0
            continue
        opcode, operands, address = match[1], match[2], int(match[3], 16)
        labels = {name for name, pattern in LABELS if pattern.fullmatch(opcode)}
        if covered > 0:
            labels.add("clause")
            covered -= 1
        if opcode == "s_clause":
            labels.add("clause")
            covered = int(operands.split()[0], 0) + 1
        if labels:
            out[address] = labels
    return out


def plain(site):
    traits = site.get("capability", {}).get("traits", [])
    return site["siteClass"] == "PLAIN" and "SITE_IN_CLAUSE" not in traits


def main():
    rjctl, extractor, objdump, processor, *libraries = sys.argv[1:]
    seen, missed, objects = {}, [], 0
    with tempfile.TemporaryDirectory() as folder:
        for library in libraries:
            files = run(extractor, folder, processor, library).split()
            files = [f for f in files if os.path.getsize(f) <= MOST_BYTES]
            for path in files[:: max(1, len(files) // OBJECTS)][:OBJECTS]:
                objects += 1
                truth = labelled(objdump, path, processor)
                sites = json.loads(run(rjctl, "--output", "json", "sites", path))["sites"]
                known = set()
                for site in sites:
                    address = int(site["location"]["codeObjectVaddr"])
                    known.add(address)
                    for label in truth.get(address, ()):
                        seen[label] = seen.get(label, 0) + 1
                        if plain(site):
                            missed.append((os.path.basename(path), site["location"], label))
                if not known:
                    sys.exit(f"{path}: no sites")
    print(f"{objects} objects of {processor}: " +
          ", ".join(f"{count} {label}" for label, count in sorted(seen.items())))
    for object_name, location, label in missed[:20]:
        print(f"called plain, but {label}: {object_name} {json.dumps(location)}", file=sys.stderr)
    if missed:
        sys.exit(f"{len(missed)} sites are called plain")
    needed = {"branch", "barrier", "program end", "PC-relative", "indirect transfer"}
    if processor.startswith("gfx1"):
        needed.add("clause")
    if objects < 10 or not needed <= seen.keys():
        sys.exit(f"too little was looked at: {objects} objects, {seen}")


if __name__ == "__main__":
    main()
