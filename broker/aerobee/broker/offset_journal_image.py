"""An image of the offset journal: all that stands, written into the journal once more.

Each entry says what will stand when the records before it count, so that whoever has read them
changes nothing, and whoever reads on from the image alone knows the same.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aerobee.broker.offset_journal_records import ImageEnd, lease_entries
from aerobee.broker.offset_journal_state import OffsetJournalState
from aerobee.broker.offset_journal_writer import OffsetJournalWriter
from aerobee.broker.offset_merge import Change, ChangeKind
from aerobee.runtime.clock import Clock

ENTRIES_PER_TURN = 256


class EndOfLog(Protocol):
    @property
    def end(self) -> int: ...


async def write_image(
    writer: OffsetJournalWriter, state: OffsetJournalState, log: EndOfLog, clock: Clock
) -> None:
    """Returns once the whole image is confirmed and on the disk.

    Raises:
        NotMaster, NotWritable, Busy, StoreFailed: a part of it may be there, which harms nobody.
    """
    writer.flush()
    position, first_offset = log.end, writer.next_offset
    if state.lease is not None:
        for entry in lease_entries(state.lease, clock.now_ms()):
            writer.add(entry)
    keys = writer.keys()
    for start in range(0, len(keys), ENTRIES_PER_TURN):
        for key in keys[start : start + ENTRIES_PER_TURN]:
            standing = writer.standing(key)
            if standing is not None:
                done = writer.change(key, Change(ChangeKind.IMAGE, *standing))
        # One record after the other: commits come in between, and little waits in memory.
        await asyncio.shield(done)
    await asyncio.shield(writer.add(ImageEnd(position, first_offset, clock.now_ms())))
