#!/usr/bin/env python3
"""Checks that every #include and every CMake link respects the layering.

Usage: check_layering.py ROOT   exits 1 and lists each forbidden edge.

The rules are the table of docs/architecture.md: a folder may use itself, what
the table allows, and system or library headers that the table does not forbid. The
files of the proof (docs/contract.md) see nothing of the engine's analysis.
"""
import pathlib
import re
import sys

# folder -> project folders that it may include from (prefixes).
ALLOWED = {
    "patch/codeobject": ["patch/codeobject"],
    "patch/isa": ["patch/isa", "patch/codeobject"],
    "patch/plan": ["patch/plan", "patch/probe", "patch/analysis", "patch/isa", "patch/codeobject"],
    "patch/analysis": ["patch/analysis", "patch/plan/reason.h", "patch/isa", "patch/codeobject"],
    "patch/probe": ["patch/probe", "patch/analysis", "patch/isa", "patch/codeobject"],
    "patch/rewrite": ["patch/rewrite", "patch/plan", "patch/probe", "patch/analysis", "patch/isa", "patch/codeobject"],
    "contract": ["contract", "patch/plan", "patch/probe", "patch/analysis", "patch/isa", "patch/codeobject", "rjdbi/v1"],
    "daemon": ["daemon", "contract", "patch", "rjdbi/v1"],
    "agent": ["agent", "rjdbi/v1"],
    "clients": ["clients", "contract", "patch", "rjdbi/v1"],
    "tests/softgpu": ["tests/softgpu"],
}
# folder -> library header prefixes that it must not see.
FORBIDDEN = {
    "patch/codeobject": ["llvm/MC", "grpc", "google/protobuf", "spdlog"],
    "patch/analysis": ["llvm/", "grpc", "google/protobuf", "spdlog"],
    "patch/rewrite": ["llvm/", "grpc", "google/protobuf", "spdlog"],
    "patch/probe": ["llvm/", "grpc", "google/protobuf", "spdlog"],
    "patch/plan": ["llvm/", "grpc", "google/protobuf", "spdlog"],
    "patch/isa": ["grpc", "google/protobuf", "spdlog"],
    "contract": ["llvm/", "grpc", "spdlog"],
    "daemon": ["llvm/", "hsa/"],
    "clients": ["llvm/", "hsa/"],
    "agent": ["llvm/", "grpc", "google/protobuf", "absl/", "spdlog"],
    "tests/softgpu": ["absl/", "grpc", "google/protobuf"],
}
# The proof judges what the engine analysed, so it must not rest on that analysis: these
# files may not include from patch/analysis, nor use its answers where a shared header
# brings them along.
PROOF = [
    "by_id", "code_facts", "kernel_code", "lanes", "dead", "seams", "longest_path", "waitcheck",
    "validate", "validate_clone", "inference",
]
PROOF_MAY_INCLUDE = {
    # The engine's list of kernels, of which numbers and decoders are used.
    "contract/validate.h": ["patch/analysis/kernel_analysis.h"],
}
PROOF_FORBIDDEN = re.compile(
    r"\bpatch::(?:Liveness|Pending|ControlFlow|BuildControlFlow|AllLanesActive|"
    r"MayActivateLanes|EqualCountRegions|FindRegions|FindClauses|BasicBlock)\b|"
    r"(?:\.|->)(?:LiveBefore|LiveAt|PendingBefore|PendingAt|Immovable|NotInsertable|"
    r"CloneObstacle|PcAddresses|SplittableClause|Regions|Reachable|flow|"
    r"has_indirect_branch|may_run_matrix_instructions|undecodable_offset)\(")
PROJECT = ("patch/", "contract/", "daemon/", "agent/", "clients/", "tests/", "rjdbi/")
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]')


def rule_for(path: str):
    best = None
    for folder in ALLOWED:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def in_proof(rel: str) -> bool:
    path = pathlib.PurePosixPath(rel)
    return path.parent.as_posix() == "contract" and path.stem in PROOF


def check_proof(rel: str, number: int, line: str):
    """What is wrong with a line of the proof, if anything."""
    found = INCLUDE.match(line)
    if found:
        name = found.group(2)
        if name.startswith("patch/analysis/") and name not in PROOF_MAY_INCLUDE.get(rel, []):
            return f"{rel}:{number}: the proof may not include {name}"
        return None
    used = PROOF_FORBIDDEN.search(line.split("//")[0])
    return f"{rel}:{number}: the proof may not use {used.group(0)}" if used else None


def is_test(path: pathlib.PurePath) -> bool:
    return path.name.endswith(("_test.cpp", "_bench.cpp"))


def check(root: pathlib.Path):
    problems, files = [], 0
    for path in sorted(root.rglob("*")):
        rel = path.relative_to(root).as_posix()
        if path.suffix not in (".h", ".c", ".cpp") or rel.startswith(("build", ".")):
            continue
        folder = rule_for(rel)
        if folder is None or is_test(path):
            continue
        files += 1
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if in_proof(rel):
                problem = check_proof(rel, number, line)
                if problem:
                    problems.append(problem)
            found = INCLUDE.match(line)
            if not found:
                continue
            name = found.group(2)
            if name.startswith(PROJECT):
                if not any(name == a or name.startswith(a + "/") for a in ALLOWED[folder]):
                    problems.append(f"{rel}:{number}: {folder} may not include {name}")
            elif any(name.startswith(f) for f in FORBIDDEN.get(folder, [])):
                problems.append(f"{rel}:{number}: {folder} may not use {name}")
    return problems, files


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, files = check(root)
    for problem in problems:
        print(problem)
    if files == 0:
        print(f"error: no source files under {root}", file=sys.stderr)
        return 1
    print(f"layering: {files} files, {len(problems)} forbidden includes")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
