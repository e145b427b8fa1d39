"""What the checks of queues share: reading entries and records, and reporting what is wrong.

Owns: only open files. Every judgement ends in one of its `report_` methods, so that a finding and
what a repair needs to know never differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aerobee.store.engine.file_cache import FileCache
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entries
from aerobee.store.format.names import file_name
from aerobee.store.repair.damage import Damage, Int64Array, QueueName
from aerobee.store.repair.findings import Findings, Kind
from aerobee.store.repair.folder import Folder
from aerobee.store.repair.log_reader import LogReader
from aerobee.store.repair.quarantine import QUARANTINED
from aerobee.store.repair.queue_cursor import QueueCursor, read_entries


@dataclass(frozen=True, slots=True)
class Run:
    """Records of a queue with consecutive offsets, and the entries they must have."""

    first: int
    positions: Int64Array
    sizes: Int64Array
    tags_codes: Int64Array
    expected: bytes

    @property
    def end(self) -> int:
        return self.first + len(self.positions)

    @property
    def last_position(self) -> int:
        return int(self.positions[-1])

    def behind(self, count: int) -> Run:
        """The run without its first `count` records."""
        return Run(
            self.first + count,
            self.positions[count:],
            self.sizes[count:],
            self.tags_codes[count:],
            self.expected[count * ENTRY_SIZE :],
        )


class QueueEvidence:
    """Reads entries and records; each judgement is one of the `report_` methods."""

    def __init__(
        self,
        folder: Folder,
        files: FileCache,
        findings: Findings,
        damage: Damage,
        cursors: Mapping[QueueName, QueueCursor],
    ) -> None:
        self.folder = folder
        self.files = files
        self.findings = findings
        self.damage = damage
        self.cursors = cursors
        self.log = LogReader(folder)

    # ------------------------------------------------------------------------------ looking

    def read(self, cursor: QueueCursor, start: int, count: int) -> bytes:
        return read_entries(self.folder, self.files, cursor, start, count)

    def entry(self, cursor: QueueCursor, offset: int) -> tuple[int, int] | None:
        data = self.read(cursor, offset, 1)
        if not data:
            return None
        positions, sizes, _ = unpack_entries(data)
        return int(positions[0]), int(sizes[0])

    def is_record_of(self, cursor: QueueCursor, offset: int, position: int, size: int) -> bool:
        record = self.log.record_at(position, size)
        return record is not None and (record.topic, record.queue_id, record.queue_offset) == (
            cursor.topic,
            cursor.queue_id,
            offset,
        )

    def is_quarantined(self, position: int, size: int) -> bool:
        record = self.log.record_at(position, size)
        return record is not None and record.property_value(QUARANTINED) is not None

    def file_of(self, cursor: QueueCursor, offset: int) -> str:
        per_file = self.folder.entries_per_file
        name = file_name((offset - offset % per_file) * ENTRY_SIZE)
        return f"consumequeue/{cursor.topic}/{cursor.queue_id}/{name}"

    def in_file(self, offset: int) -> int:
        return offset % self.folder.entries_per_file * ENTRY_SIZE

    # ------------------------------------------------------------------------------ reporting

    def report_missing(self, cursor: QueueCursor, first: int, end: int) -> None:
        self.damage.bad_queues.setdefault(
            (cursor.topic, cursor.queue_id), "it does not list all of its messages"
        )
        self.findings.add(
            Kind.QUEUE_MISSING_ENTRIES,
            self.file_of(cursor, first),
            f"{cursor.shown} does not list {end - first} messages, offsets {first} to {end - 1}",
            position=self.in_file(first),
            topic=cursor.topic,
            queue=cursor.queue_id,
            first=first,
            end=end,
        )

    def report_wrong(self, cursor: QueueCursor, offset: int, text: str) -> None:
        self.damage.bad_queues.setdefault((cursor.topic, cursor.queue_id), "its entries are wrong")
        self.findings.add(
            Kind.QUEUE_ENTRY_WRONG,
            self.file_of(cursor, offset),
            f"{cursor.shown}: {text}",
            position=self.in_file(offset),
            topic=cursor.topic,
            queue=cursor.queue_id,
            offset=offset,
        )

    def report_twice(self, cursor: QueueCursor, run: Run, first: int, end: int) -> None:
        position = int(run.positions[first])
        self.findings.add(
            Kind.LOG_OFFSET_TWICE,
            self.log.path_of(position),
            f"{end - first} records of {cursor.shown} from offset {run.first + first} on are "
            "there a second time",
            position=self.log.in_file(position),
            log_position=position,
        )
