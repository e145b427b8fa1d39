"""Long frames of messages processed in turns: other requests run between the parts of one. Other
long work takes its turns from `LoopTurns`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

TURN_ELEMENTS = 1_000
"""About ten milliseconds of the cheapest work done per element."""


async def in_turns(elements: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Parts of `elements`, each in a later turn of the loop than the one before."""
    for start in range(0, len(elements), TURN_ELEMENTS):
        if start:
            await asyncio.sleep(0)
        yield elements[start : start + TURN_ELEMENTS]
