"""A process that writes down how long others had to wait for a processor: what a machine with too
few of them does to a message, and no attacker.

    python -m tests.port_fuzz.clerk FILE NAME=PID...

Linux counts it for each thread. Here it is that of each process's first one, which has its event
loop. When standard input ends, the clerk writes FILE: the JSON of its `Waits`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 0.01


@dataclass
class Waits:
    """Seconds since each process began, at some moments of the monotonic clock."""

    at_s: list[float] = field(default_factory=list)
    waited_s: dict[str, list[float]] = field(default_factory=dict)


def main() -> None:
    waits = Waits()
    files: dict[str, int] = {}
    for word in sys.argv[2:]:
        name, _, pid = word.partition("=")
        files[name] = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        waits.waited_s[name] = []
    while not select.select([sys.stdin], [], [], INTERVAL_S)[0]:
        now_s = time.monotonic()
        try:
            read = [int(os.pread(file, 100, 0).split()[1]) / 1e9 for file in files.values()]
        except ProcessLookupError:
            break  # which the campaign tells
        waits.at_s.append(now_s)
        for name, waited_s in zip(files, read, strict=True):
            waits.waited_s[name].append(waited_s)
    Path(sys.argv[1]).write_text(json.dumps(vars(waits)))


if __name__ == "__main__":
    main()
