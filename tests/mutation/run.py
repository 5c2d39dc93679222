#!/usr/bin/env python3
"""Breaks the engine on purpose, rule by rule, and requires that a test fails.

Usage: run.py --check SOURCE           every break still applies to the sources
       run.py SOURCE BUILD [NAME...]   in BUILD (made if missing): apply each break
                                       (or those whose name contains a NAME) to a
                                       copy of SOURCE, rebuild, run its tests

Exit 1: a break survives all its tests, does not compile, or no longer applies.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

from breaks import BREAKS

TIMEOUT = 600  # seconds; a break may also make a test hang


def applies(root: pathlib.Path, item) -> str:
    """What is wrong with the break; empty: nothing."""
    count = (root / item.file).read_text().count(item.old)
    return "" if count == 1 else f"{item.name}: its text occurs {count} times in {item.file}"


def check(root: pathlib.Path) -> int:
    problems = [p for p in (applies(root, item) for item in BREAKS) if p]
    problems += [f"{item.name}: changes nothing" for item in BREAKS if item.old == item.new]
    for problem in problems:
        print(problem)
    print(f"mutation: {len(BREAKS)} breaks, {len(problems)} that do not apply")
    return 1 if problems else 0


def copy_sources(source: pathlib.Path, copy: pathlib.Path) -> None:
    """Only what differs is written, so that a second run rebuilds little."""
    listed = subprocess.run(["git", "-C", str(source), "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], check=True, capture_output=True).stdout
    for name in listed.decode().split("\0"):
        if not name or not (source / name).is_file():
            continue
        target = copy / name
        if target.is_file() and target.read_bytes() == (source / name).read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target)


def build(directory: pathlib.Path, targets) -> str:
    """The output if it fails."""
    done = subprocess.run(["ninja", "-C", str(directory), *targets], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout


def passes(directory: pathlib.Path, test, log) -> bool:
    program, pattern = test
    found = next(directory.glob(f"tests/*/{program}"))
    try:
        done = subprocess.run([str(found), f"--gtest_filter={pattern}", "--gtest_brief=1"],
                              stdout=log, stderr=subprocess.STDOUT, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def holds(directory: pathlib.Path, item, copy: pathlib.Path, log) -> str:
    """Which test caught the break; empty: none."""
    path = copy / item.file
    original = path.read_text()
    try:
        path.write_text(original.replace(item.old, item.new))
        for test in item.tests:
            failure = build(directory, [test[0]])
            if failure:
                print(failure[-3000:])
                return "!"
            if not passes(directory, test, log):
                return test[0]
        return ""
    finally:
        path.write_text(original)


def main() -> int:
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "--check":
        return check(pathlib.Path(arguments[1]))
    if len(arguments) < 2:
        print(__doc__)
        return 2
    source, work = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]).resolve()
    if check(source) != 0:
        return 1
    wanted = [b for b in BREAKS
              if not arguments[2:] or any(name in b.name for name in arguments[2:])]
    if not wanted:
        print("no break has such a name")
        return 2
    copy, directory = work / "src", work / "build"
    copy_sources(source, copy)
    if not (directory / "build.ninja").is_file():
        subprocess.run(["cmake", "-G", "Ninja", "-S", str(copy), "-B", str(directory)], check=True,
                       stdout=subprocess.DEVNULL)
    tests = sorted({test for item in wanted for test in item.tests})
    failure = build(directory, sorted({program for program, _ in tests}))
    if failure:
        print(failure[-3000:])
        return 1
    survivors = 0
    with open(work / "tests.log", "w") as log:
        for test in tests:
            if not passes(directory, test, log):
                print(f"{test[0]} --gtest_filter={test[1]} fails without any break; see {log.name}")
                return 1
        for item in wanted:
            begin = time.monotonic()
            by = holds(directory, item, copy, log)
            survivors += by in ("", "!")
            verdict = {"": "SURVIVES", "!": "DOES NOT COMPILE"}.get(by, f"caught by {by}")
            print(f"{verdict:34} {item.name} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(wanted)} breaks, {survivors} not caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    os.environ.setdefault("NINJA_STATUS", "")
    sys.exit(main())
