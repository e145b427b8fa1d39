"""How often this process's event loop wakes: the cost of an idle part."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LoopWakes:
    """Since the count began, or was reset to 0."""

    count = 0


@contextmanager
def loop_wakes() -> Iterator[LoopWakes]:
    """Counts the wakes of the running loop within the block."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    select, wakes = selector.select, LoopWakes()

    def counted(timeout: float | None = None) -> Any:
        # A turn that does not wait belongs to the same wake.
        wakes.count += timeout != 0
        return select(timeout)

    selector.select = counted
    try:
        yield wakes
    finally:
        selector.select = select
