"""What a producer tells of its work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """What a producer has done since it was opened."""

    messages_stored: int
    messages_failed: int
    batches_stored: int
    batches_retried: int
    buffered_bytes: int
