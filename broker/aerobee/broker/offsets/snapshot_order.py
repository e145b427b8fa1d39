"""The log first, then the snapshot of the offsets: a snapshot that calls a message finished must
not outlive the copy that replaced it."""

from __future__ import annotations

import asyncio
from typing import Final

from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.sending.durability import Durability
from aerobee.runtime.errors import NotWritable

FLUSH_TIMEOUT_S: Final = 5.0


async def flush_what_was_sent_back(state: OffsetJournalState, durability: Durability) -> None:
    """Returns when all of the log that the state follows from is on disk; at once if no message was
    ever sent back. Raises NotWritable: the disk is slow; the snapshot can wait."""
    if not state.next_copy:
        return
    try:
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await durability.wait_flushed()
    except TimeoutError:
        raise NotWritable("the disk is slow; the offsets are written after the log") from None
