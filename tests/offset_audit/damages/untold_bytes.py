"""Bytes of a log that nothing in a store repeats and no checksum covers, so no reader can know what
was written: some fields of a record's header, and its properties."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
)
from tests.offset_audit.damages.store_damages import places

UNTOLD = (
    (FLAG_AT, 4),
    (BORN_TIMESTAMP_AT, 8),
    (BORN_HOST_AT, 8),
    (STORE_TIMESTAMP_AT, 8),
    (STORE_HOST_AT, 8),
    (RECONSUME_TIMES_AT, 4),
    (PREPARED_TRANSACTION_OFFSET_AT, 8),
)
"""Where each field begins, and its bytes. A store time is seen where it leaves its neighbours."""


def is_only_untold(sound: Path, damaged: Path, segment_bytes: int) -> bool:
    """Whether the stores differ, and only in such bytes of their logs."""
    changed = _changed(sound, damaged)
    if not changed:
        return False
    records = sorted(places(sound, segment_bytes), key=lambda one: one.position)
    begins = [one.position for one in records]
    for position in changed:
        one = records[max(0, bisect_right(begins, position) - 1)]
        at = position - one.position
        topic_at = BODY_AT + one.number(BODY_LENGTH_AT, ">i")
        properties_at = topic_at + 1 + one.read(topic_at, 1)[0] + 2
        is_told = at < properties_at and not any(
            begin <= at < begin + size for begin, size in UNTOLD
        )
        if is_told or not 0 <= at < one.size:
            return False
    return True


def _changed(sound: Path, damaged: Path) -> list[int] | None:
    """Log positions of bytes that differ; None if another file does, too, or another length."""
    positions: list[int] = []
    for path in (each for each in sound.rglob("*") if each.is_file() and each.name != "lock"):
        other = damaged / path.relative_to(sound)
        before, after = path.read_bytes(), other.read_bytes() if other.exists() else b""
        if before == after:
            continue
        if path.parent.name != "commitlog" or len(before) != len(after):
            return None
        base = int(path.name)
        positions += [base + at for at in range(len(before)) if before[at] != after[at]]
    return positions
