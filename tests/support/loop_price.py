"""What a server in this process makes its other clients wait, and what it takes of memory."""

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
    """Filled in when the watch is over."""

    longest_step_s: float = 0.0
    """Most CPU time that the loop's thread took between two chances for others to run, on a
    processor of usual speed. Other processes on the machine do not count, nor does what they slow
    this one down."""
    memory_bytes: int = 0
    """How much further than at the beginning the process has grown, at its largest."""


_STEPS = 300_000
_STEPS_S = 0.01
"""What so many steps of an empty loop take on a processor that nobody shares."""


@asynccontextmanager
async def watched() -> AsyncIterator[Price]:
    price = Price()
    gc.collect()
    gc.freeze()  # what this process's other tests left is no part of a server's price
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident("VmRSS")
    over = asyncio.Event()

    async def watch() -> None:
        last_s = time.thread_time()
        while not over.is_set():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            price.longest_step_s = max(price.longest_step_s, now_s - last_s)
            last_s = now_s

    slowness = _slowness()
    watching = asyncio.create_task(watch(), name="loop-price")
    try:
        yield price
    finally:
        over.set()
        await watching
        price.longest_step_s /= max(slowness, _slowness())
        gc.unfreeze()
        price.memory_bytes = _resident("VmHWM") - before


def _slowness() -> float:
    """How many times longer than usual this processor takes now, at least 1."""
    began_s = time.thread_time()
    for _ in range(_STEPS):
        pass
    return max(1.0, (time.thread_time() - began_s) / _STEPS_S)


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1_024
    raise AssertionError(f"/proc/self/status has no {name}")
