"""The tests of compiled modules, on what `make compiled` has made; `make compiled-test` does both.

Campaigns run with fewer seeds than elsewhere: what they look for here is code that runs otherwise
than Python, which shows early.
"""

from __future__ import annotations

import subprocess
import sys
import time

PYTEST = ("pytest", "--forks", "2", "-q", "-m", "not long and not thorough and not slow")
ALONE = ("pytest", "--last-failed", "--last-failed-no-failures", "none", "-q")
TESTS = (
    "tests/compiled",
    "tests/rpc/core",
    "tests/store",
    "tests/producer_client",
    "tests/broker/sending",
    "tests/broker/pop",
    "tests/broker/edge/test_remoting_fuzz.py",
    "tests/remoting_core",
    "tests/rocketmq_api/test_deliveries.py",
    "tests/rocketmq_api/test_golden_messages.py",
    "tests/rocketmq_api/test_odd_requests.py",
    "tests/rocketmq_api/test_polling.py",
    "tests/rocketmq_api/test_receipt_handles.py",
    "tests/rocketmq_api/test_sent_and_received.py",
)
"""A module that is new in the list brings its tests, and the simulation that runs it."""
CAMPAIGNS = (
    (*PYTEST, *TESTS),
    ("tests.rpc.core.fuzz", "--streams", "2000"),
    ("tests.rpc.core.fuzz_client", "--streams", "1000"),
    ("tests.simulation", "cluster", "--seeds", "150", "--jobs", "2"),
    ("tests.simulation", "pops", "--seeds", "1000", "--jobs", "2"),
    ("tests.simulation", "power_cuts", "--seeds", "1000", "--jobs", "2"),
)


def main() -> int:
    failed = []
    for words in CAMPAIGNS:
        began_s = time.monotonic()
        done = subprocess.run([sys.executable, "-m", *words], check=False)
        if done.returncode and words[0] == "pytest":
            # As in the suite: what failed beside others is named above, and runs once more alone.
            done = subprocess.run([sys.executable, "-m", *ALONE], check=False)
        print(f"{' '.join(words[:3])}: {time.monotonic() - began_s:.0f} s", flush=True)
        if done.returncode:
            failed.append(" ".join(words[:3]))
    print(f"failed on compiled modules: {', '.join(failed)}" if failed else "as in Python")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
