"""PURE: records without those that a group has already finished after its committed offset."""

from __future__ import annotations

from aerobee.store.engine.tables.finished_ranges import FinishedRanges
from aerobee.store.format.record import iterate_records


def without_finished(records: bytes, finished: FinishedRanges) -> tuple[bytes, int]:
    """The unfinished records of one queue, concatenated, and their number. Raises RecordCorrupt."""
    kept: list[memoryview] = []
    data = memoryview(records)
    begin = 0
    for record in iterate_records(records):
        end = begin + record.size
        if record.queue_offset not in finished:
            kept.append(data[begin:end])
        begin = end
    return b"".join(kept), len(kept)
