"""reports.py clear|check FOLDER: empties the folder of sanitizer reports, or
prints the reports in it and fails if there are any.

A data race counts if our code makes both accesses, itself or through the
standard library. gRPC, protobuf and ROCR are not instrumented, so nothing can be
said about an access that one of them makes: its synchronisation is invisible.
"""
import pathlib
import re
import shutil
import sys

SEPARATOR = "=================="
# Frames that act on behalf of their caller.
TRANSPARENT = re.compile(r"libsanitizer/|/include/c\+\+/| std::| operator (new|delete)")
OURS = re.compile(r"/?(patch|contract|daemon|agent|clients|tests)/\S+:\d+ \(")


def by_us(stack):
    for frame in stack:
        if not TRANSPARENT.search(frame):
            return "/usr/" not in frame and OURS.search(frame) is not None
    return False


def unfinished(report):
    """Tests kill processes, also while they write a report: it ends without its summary."""
    return "WARNING: ThreadSanitizer" in report and "\nSUMMARY: " not in report


def counts(report):
    if re.fullmatch(r"\s*(ThreadSanitizer: reported \d+ warnings)?\s*", report):
        return False
    if "ThreadSanitizer: data race" not in report and "ThreadSanitizer: heap-use" not in report:
        return True
    stacks = re.findall(r"^  (?:Previous )?(?:atomic )?(?:read|write) of size [^\n]*\n((?:    #[^\n]*\n)+)",
                        report, re.IGNORECASE | re.MULTILINE)
    if unfinished(report):
        return bool(stacks) and all(by_us(stack.splitlines()) for stack in stacks[:2])
    # In a whole report, an access whose stack is lost counts as ours.
    return all(by_us(stack.splitlines()) for stack in stacks[:2])


def check(folder):
    if not folder.is_dir():
        sys.exit(f"no folder {folder}: nothing could be reported")
    reports = [part.strip("\n") for file in sorted(folder.iterdir())
               for part in file.read_text(errors="replace").split(SEPARATOR)]
    bad = [report for report in reports if counts(report + "\n")]
    for report in bad:
        print(SEPARATOR, report, sep="\n")
    for report in reports:
        if unfinished(report) and report not in bad:
            print("not counted, cut off when its process was killed:", report, sep="\n")
    return 1 if bad else 0


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if command == "clear":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return 0
    return check(folder)


if __name__ == "__main__":
    sys.exit(main())
