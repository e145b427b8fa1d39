"""Is each group's progress plausible? Checks of committed offsets, lag, leases and the offset
journal.

All of them use the same three tables, which a run makes once, persists and passes on:

    tables = replace(tables, changes=find_changes(tables, limits).persist())
    tables = replace(tables, judged=judge(tables, limits).persist())
    tables = replace(tables, moves=find_moves(tables, limits).persist())
    states = progress(tables, limits)
    found = [check.run(tables, limits) for check in CHECKS]
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.checks.check import Check
from aerobee.offset_audit.checks.progress.journal import find_changes
from aerobee.offset_audit.checks.progress.judged import judge, progress
from aerobee.offset_audit.checks.progress.jumps import RESET, REWOUND, SKIPPED
from aerobee.offset_audit.checks.progress.lag import LAG, SAMPLING, SLOW
from aerobee.offset_audit.checks.progress.moves import find_moves
from aerobee.offset_audit.checks.progress.orphan import ORPHAN
from aerobee.offset_audit.checks.progress.out_of_range import OUT_OF_RANGE_HIGH, OUT_OF_RANGE_LOW
from aerobee.offset_audit.checks.progress.standstill import STOPPED, STUCK, UNCOMMITTED_QUEUE

CHECKS: Final[tuple[Check, ...]] = (
    LAG,
    SLOW,
    STUCK,
    STOPPED,
    REWOUND,
    RESET,
    SKIPPED,
    OUT_OF_RANGE_LOW,
    OUT_OF_RANGE_HIGH,
    ORPHAN,
    UNCOMMITTED_QUEUE,
    SAMPLING,
)

__all__ = ["CHECKS", "find_changes", "find_moves", "judge", "progress"]
