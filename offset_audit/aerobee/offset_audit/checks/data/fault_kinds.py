"""Which kind of damage is told by which check, so that none is told twice."""

from __future__ import annotations

from typing import Final

HIDING: Final = (
    "BAD_MAGIC",
    "BAD_LENGTHS",
    "BAD_TOPIC",
    "MISPLACED",
    "HOLE",
    "TORN",
    "MISSING_SEGMENT",
    "CUT_SEGMENT",
)
"""Damage of the log in which records cannot be read."""

OF_LOG: Final = (*HIDING, "BAD_CRC")
"""Damage of the log; a body may be bad though all of its record can be told."""

INDEX_PREFIX: Final = "INDEX_"
"""Begins the kinds of the key index: INDEX_MISSING's."""

BAD_TIME: Final = "BAD_TIME"
"""A record whose store time cannot be right; all else of it is."""

TIME_BACKWARD: Final = "TIME_BACKWARD"
"""CLOCK's."""

BAD_CONFIG: Final = "BAD_CONFIG"

OF_QUEUES: Final = ("MISSING_FILE", "QUEUE_FILE_SIZE", "BAD_ENTRY")
"""Damage of queue files: what it costs is counted by MISSING_ENTRY."""

DERIVED: Final = ("BAD_CHECKPOINT",)
"""Files that a broker makes again by itself."""
