"""The suite, two tests at a time; what fails beside others is run once more, alone.

Left out is what needs a Kubernetes of its own (marked `kubernetes`): `make k8s-test` runs that; and
the pages of docs/operations, which take minutes (marked `procedures`): `make procedures`.
Many tests start real brokers, kill them and wait for what must happen in time. On a machine that
others load too, such a wait can run out although nothing is wrong. So up to FAILURES_MAX failures
get a second chance without company, and are named at the end; whatever fails twice is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
FAILURES_MAX = 5


def failed_last() -> list[str]:
    """What the last run says has failed: names of tests, or of files that cannot be imported."""
    try:
        return sorted(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    two_at_a_time = ("-n", "2", "--dist", "worksteal")
    which = ("-m", "not kubernetes and not procedures")
    status = subprocess.call([*pytest, *two_at_a_time, *which, "--cache-clear"], cwd=ROOT)
    failed = failed_last()
    if status != 1 or not 0 < len(failed) <= FAILURES_MAX:
        return status
    print(
        f"\n{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True
    )
    again = subprocess.call(
        [*pytest, "--last-failed", "--last-failed-no-failures", "none"], cwd=ROOT
    )
    if again == 0:
        print("\nPassed alone, though not beside others:", *failed, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main())
