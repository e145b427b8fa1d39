"""Small facts about a consume queue that readers of entries share."""

from __future__ import annotations

from dataclasses import dataclass

# The size in the entries that stand blank before a queue's first message.
PRE_BLANK_SIZE = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Offsets of the first message and after the last; where the last record ends in the log."""

    min_offset: int
    max_offset: int
    max_physical_offset: int = 0
