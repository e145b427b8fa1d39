"""How often this process's event loop wakes: what an idle part of it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LoopWakes:
    """Since the count began, or was set to 0."""

    count = 0


@contextmanager
def loop_wakes() -> Iterator[LoopWakes]:
    """Counts those of the running loop within the block."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select, wakes = selector.select, LoopWakes()

    def counted(timeout: float | None = None) -> Any:
        # A turn that does not wait is the same waking.
        wakes.count += timeout != 0
        return select(timeout)

    selector.select = counted
    try:
        yield wakes
    finally:
        selector.select = select
