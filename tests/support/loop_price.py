"""How long a server in this process makes its other clients wait, and how much memory it takes."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Price:
    """Filled in when the measurement is over."""

    longest_step_s: float = 0.0
    """The most CPU time that the loop's thread took between two chances for others to run,
    normalised to a processor of usual speed. Neither other processes nor the slowdown they cause
    count."""
    memory_bytes: int = 0
    """The peak growth of the process since the beginning."""


_STEPS = 300_000
_STEPS_S = 0.01
"""The time of this many steps of an empty loop on an unshared processor."""


@asynccontextmanager
async def watched() -> AsyncIterator[Price]:
    price = Price()
    gc.collect()
    gc.freeze()  # what this process's other tests left is not part of a server's price
    Path("/proc/self/clear_refs").write_text("5")  # restarts the peak
    before = _resident("VmRSS")
    over = asyncio.Event()

    async def watch() -> None:
        last_s = time.thread_time()
        while not over.is_set():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            price.longest_step_s = max(price.longest_step_s, now_s - last_s)
            last_s = now_s

    slow = slowness()
    watching = asyncio.create_task(watch(), name="loop-price")
    try:
        yield price
    finally:
        over.set()
        await watching
        price.longest_step_s /= max(slow, slowness())
        gc.unfreeze()
        price.memory_bytes = _resident("VmHWM") - before


def slowness() -> float:
    """How many times slower than usual this processor is now, at least 1."""
    began_s = time.thread_time()
    for _ in range(_STEPS):
        pass
    return max(1.0, (time.thread_time() - began_s) / _STEPS_S)


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1_024
    raise AssertionError(f"/proc/self/status has no {name}")
