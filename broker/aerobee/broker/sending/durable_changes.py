"""Waits until a change that somebody asked for is confirmed and on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from aerobee.broker.sending.durability import Durability
from aerobee.runtime.errors import DeadlineExceeded, NotMaster

DURABLE_TIMEOUT_S: Final = 5.0


async def confirmed_and_flushed(durability: Durability, end: int, unsure: str) -> None:
    """Until the log is both up to `end`.

    Args:
        unsure: what was not confirmed, and what that may mean.

    Raises:
        NotMaster: the term has ended before.
    """
    forever = float("inf")
    if not await durability.confirmed.wait(end, forever):
        raise NotMaster(f"this replica's term as master ended before {unsure}; ask the master")
    await durability.flushed.wait(end, forever)


async def in_time(done: Awaitable[object], advice: str) -> None:
    """Raises what `done` raises, and DeadlineExceeded: it may still count; `advice` says how to
    find out."""
    try:
        async with asyncio.timeout(DURABLE_TIMEOUT_S):
            await done
    except TimeoutError:
        raise DeadlineExceeded(
            f"the change was not confirmed within {DURABLE_TIMEOUT_S:g} s and may still count; "
            f"{advice}"
        ) from None
