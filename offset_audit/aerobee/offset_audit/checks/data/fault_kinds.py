"""Which check reports which kind of damage, so that none is reported twice."""

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
"""Damage of the log; with a bad body, the rest of the record can be read."""

INDEX_PREFIX: Final = "INDEX_"
"""Prefix of the kinds of the key index, reported by INDEX_MISSING."""

BAD_TIME: Final = "BAD_TIME"
"""A record whose store time cannot be right; everything else in it is."""

TIME_BACKWARD: Final = "TIME_BACKWARD"
"""Reported by CLOCK."""

BAD_CONFIG: Final = "BAD_CONFIG"

OF_TABLES: Final = (BAD_CONFIG, "CHANGED_TABLE", "LOST_ROW")
"""Damage of tables; those that can be read are still used by a broker."""

OF_QUEUES: Final = ("MISSING_FILE", "QUEUE_FILE_SIZE", "BAD_ENTRY")
"""Damage of queue files: its cost is counted by MISSING_ENTRY."""

WARNINGS: Final = ("BAD_CHECKPOINT", "LOST_BEGIN")
"""A file that a broker rebuilds by itself; and what may be retention that was interrupted."""
