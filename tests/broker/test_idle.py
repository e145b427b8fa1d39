"""A broker with nothing to do sleeps."""

from __future__ import annotations

import asyncio
from typing import Any

WAKES_PER_S_MAX = 5
WINDOW_S = 3.0
WINDOWS_MAX = 8


async def test_an_idle_brokers_loop_wakes_fewer_than_five_times_a_second(
    start_broker: Any,
) -> None:
    await start_broker()
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    wakes = 0
    select = selector.select

    def counted(timeout: float | None = None) -> Any:
        nonlocal wakes
        # A turn that does not wait is the same waking.
        wakes += timeout != 0
        return select(timeout)

    selector.select = counted
    try:
        for _ in range(WINDOWS_MAX):  # the first tables are written meanwhile, and a checkpoint
            wakes = 0
            await asyncio.sleep(WINDOW_S)
            if wakes < WAKES_PER_S_MAX * WINDOW_S:
                return
    finally:
        selector.select = select
    raise AssertionError(f"{wakes} times in {WINDOW_S} s")
