"""What a Spark run costs in processor time: wall-clock time means little on a busy machine.

Counts Java and the Python workers below this process, including those that have ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aerobee.bench.measure import Stopwatch, Throughput

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_TIMES: Final = slice(11, 15)
"""Fields of /proc/PID/stat after the name: user, system, and both of reaped children."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """What one run took."""

    throughput: Throughput
    cpu_s: float

    def note(self, cores: int) -> str:
        """What the run costs, and what that means on an otherwise idle machine."""
        rows = self.throughput.messages
        each_us = self.cpu_s / rows * 1e6
        rate = rows / self.cpu_s * cores
        return f"{each_us:.2f} us of processor each: {rate:,.0f}/s of {cores} whole cores"


def timed_run(rows: int, row_bytes: int, run: Callable[[], Any]) -> SparkRun:
    """Run it once."""
    cpu_s = tree_cpu_s()
    watch = Stopwatch()
    run()
    elapsed_s = watch.elapsed_s()
    return SparkRun(Throughput(rows, rows * row_bytes, elapsed_s), tree_cpu_s() - cpu_s)


def tree_cpu_s() -> float:
    """Processor seconds of all processes below this one."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        values = text.rpartition(")")[2].split()
        pid = int(folder.name)
        children.setdefault(int(values[1]), []).append(pid)
        used[pid] = sum(map(int, values[_TIMES]))
    total = 0
    left = list(children.get(os.getpid(), ()))
    while left:
        pid = left.pop()
        total += used[pid]
        left += children.get(pid, ())
    return total / _TICKS_PER_S
