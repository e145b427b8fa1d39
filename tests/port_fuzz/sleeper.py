"""A process that only sleeps, and tells how late it woke: what the machine alone does to others.

    python -m tests.port_fuzz.sleeper FILE

Until its standard input ends; then it writes FILE: JSON, a list of when it woke and how late that
was, in seconds of the monotonic clock.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 0.005
KEPT_FROM_S: Final = 0.001


def main() -> None:
    late: list[tuple[float, float]] = []
    while True:
        before_s = time.monotonic()
        if select.select([sys.stdin], [], [], INTERVAL_S)[0]:
            break
        now_s = time.monotonic()
        if now_s - before_s > INTERVAL_S + KEPT_FROM_S:
            late.append((now_s, now_s - before_s - INTERVAL_S))
    Path(sys.argv[1]).write_text(json.dumps(late))


if __name__ == "__main__":
    main()
