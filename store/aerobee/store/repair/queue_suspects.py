"""Records that their queue knows under another name or number, judged once everything is known.

A flipped bit in a record's header changes no checksum. The queue's entry and the neighbours show
it; but an entry can be wrong as well, so nothing is decided before the whole queue was compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.store.format.checked_batch import UNQUEUED_BIT
from aerobee.store.format.record_view import Record
from aerobee.store.repair.damage import HeaderFix
from aerobee.store.repair.findings import Kind
from aerobee.store.repair.queue_cursor import QueueCursor
from aerobee.store.repair.queue_evidence import QueueEvidence

# A header that differs in more bits did not change by chance.
_BITS_MAX = 8
# The first ones of a queue show what happened to it.
_KEPT_PER_QUEUE_MAX = 100


@dataclass(frozen=True, slots=True)
class _Suspect:
    offset: int
    position: int
    size: int
    # The log's own order of the queue's records agrees with the entry.
    is_in_order: bool


class QueueSuspects:
    """Collects while the log is read; call `judge` at its end."""

    def __init__(self, evidence: QueueEvidence) -> None:
        self._evidence = evidence
        self._suspects: dict[QueueCursor, list[_Suspect]] = {}

    def add(
        self, cursor: QueueCursor, offset: int, position: int, size: int, *, is_in_order: bool
    ) -> None:
        """The record at `position` is where the queue's `offset` should point, but claims something
        else.

        `is_in_order`: it is in the log where that offset must come.
        """
        kept = self._suspects.setdefault(cursor, [])
        if len(kept) < _KEPT_PER_QUEUE_MAX:
            kept.append(_Suspect(offset, position, size, is_in_order))

    def judge(self) -> None:
        """All queues are finished. A queue that is also wrong elsewhere is not used as a witness,
        nor is one that would change more than a few bits of a record."""
        for cursor, suspects in self._suspects.items():
            if self._is_shifted(cursor, suspects):
                continue
            for suspect in suspects:
                self._judge(cursor, suspect)

    def _judge(self, cursor: QueueCursor, suspect: _Suspect) -> None:
        evidence = self._evidence
        record = evidence.log.record_at(suspect.position, suspect.size)
        if record is None:
            return
        offset = suspect.offset
        is_bad = (cursor.topic, cursor.queue_id) in evidence.damage.bad_queues
        is_bad &= not suspect.is_in_order
        said = f"offset {record.queue_offset} of queue {record.queue_id} of {record.topic}"
        if record.sys_flag & UNQUEUED_BIT:
            said += ", and to be in no queue"
        if is_bad or _different_bits(record, cursor, offset) > _BITS_MAX:
            evidence.report_wrong(cursor, offset, f"entry {offset} leads to {said}")
            return
        evidence.findings.add(
            Kind.LOG_RECORD_HEADER,
            evidence.log.path_of(suspect.position),
            f"the record at log position {suspect.position} says {said}; in its queue it is "
            f"offset {offset} of {cursor.shown}",
            position=evidence.log.in_file(suspect.position),
            log_position=suspect.position,
        )
        evidence.damage.header_fixes.append(
            HeaderFix(
                suspect.position,
                suspect.size,
                cursor.topic,
                cursor.queue_id,
                offset,
                flags_cleared=UNQUEUED_BIT,  # its queue lists it
            )
        )

    def _is_shifted(self, cursor: QueueCursor, suspects: list[_Suspect]) -> bool:
        """Whether the queue lists record after record the same number of places too early: the log
        lacks offsets, and the rebuilt queue closed the gap. Readers get everything that exists."""
        if len(suspects) < 2:
            return False
        first = suspects[0]
        shift = self._shift_of(cursor, first)
        if shift <= 0 or self._shift_of(cursor, suspects[1]) != shift:
            return False
        self._evidence.findings.add(
            Kind.LOG_OFFSETS_MISSING,
            self._evidence.file_of(cursor, first.offset),
            f"{cursor.shown} has no messages {first.offset} to {first.offset + shift - 1}; the "
            f"following ones are listed {shift} places too early",
            topic=cursor.topic,
            queue=cursor.queue_id,
            first=first.offset,
            end=first.offset + shift,
        )
        return True

    def _shift_of(self, cursor: QueueCursor, suspect: _Suspect) -> int:
        record = self._evidence.log.record_at(suspect.position, suspect.size)
        if record is None or (record.topic, record.queue_id) != (cursor.topic, cursor.queue_id):
            return 0
        return record.queue_offset - suspect.offset


def _different_bits(record: Record, cursor: QueueCursor, offset: int) -> int:
    """In how many bits the record's name and number differ from what its queue says."""
    said, known = record.topic_bytes, cursor.topic.encode()
    if len(said) != len(known):
        return _BITS_MAX + 1
    topics = int.from_bytes(said, "big") ^ int.from_bytes(known, "big")
    numbers = (record.queue_offset ^ offset) & ((1 << 64) - 1)
    ids = (record.queue_id ^ cursor.queue_id) & 0xFFFF_FFFF
    return topics.bit_count() + numbers.bit_count() + ids.bit_count()
