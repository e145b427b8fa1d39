"""Checks of the contents of stores: log, queues and key index against each other.

Blocks first, rows only where they are needed. A block whose messages and digest agree between the
log and the queue files is sound; the others are passed to `Tables.queue_rows` (those of the index
to `Tables.key_rows`), which reads only these blocks and gives their rows. Several checks ask it for
the same blocks. What the checks rely on:

- LOG counts every record that should have an entry: not prepared or rolled-back ones; a record that
  is also dispatched to other queues once for each; a record with a damaged body as any other, if
  its header can be read. ENTRIES has no filler entries and none of records below the log's minimum.
- A row of FAULTS is one cause. `position` and `size` give the bytes (for the log: log positions)
  that are unreadable because of it, up to the next readable record; a missing segment is one row
  with the segment's size. `size` is null if everything around it can be read, as with a bad body.
- Where a record and its entry differ (position, size, tags code, queue offset) no fault is needed:
  the rows of the block show it.
- Zeros after the last entry of a queue are its end, not bad entries.
- BROKERS of a store at rest: `entries_until_ms` and `keys_until_ms` are the store times up to which
  queue and index files are guaranteed to be complete. After a clean stop: the last record's, or
  later; otherwise what the checkpoint guarantees. Later records are not missed.
- QUEUES of a store at rest: `min_offset` according to the store's own files (consumequeue.ends),
  else that of the first entry whose record the log still has.
"""

from __future__ import annotations

from aerobee.offset_audit.checks.check import Check
from aerobee.offset_audit.checks.data import corrupt, index_missing, queue_beyond, tier_imbalance
from aerobee.offset_audit.checks.data.entries import DUPLICATE, GAP, MISSING_ENTRY
from aerobee.offset_audit.checks.data.failed import DEAD_LETTER_ORIGIN, RETRY_LOST, RETRY_TWICE
from aerobee.offset_audit.checks.data.given_up import GIVEN_UP
from aerobee.offset_audit.checks.data.overdue import DELAY_OVERDUE, HALF_OVERDUE, TIMER_OVERDUE
from aerobee.offset_audit.checks.data.set_aside import SET_ASIDE

CHECKS: tuple[Check, ...] = (
    corrupt.CORRUPT,
    GAP,
    MISSING_ENTRY,
    DUPLICATE,
    index_missing.CHECK,
    corrupt.BAD_CONFIG,
    queue_beyond.CHECK,
    HALF_OVERDUE,
    DELAY_OVERDUE,
    TIMER_OVERDUE,
    GIVEN_UP,
    SET_ASIDE,
    RETRY_LOST,
    RETRY_TWICE,
    DEAD_LETTER_ORIGIN,
    tier_imbalance.CHECK,
)
"""Every check in this folder, the one that explains most first."""
