"""Steps inside segments: stand-ins for damaged records, and corrected fields."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aerobee.store.format.property_crc import write_property_crc
from aerobee.store.format.record_layout import (
    BLANK_SIZE_MIN,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    RecordCorrupt,
    blank_record,
)
from aerobee.store.format.record_view import Record
from aerobee.store.repair.actions import Overwrite, Step
from aerobee.store.repair.damage import DamagedRegion, HeaderFix, LostRange, QueueName
from aerobee.store.repair.findings import Kind
from aerobee.store.repair.log_reader import LogReader
from aerobee.store.repair.quarantine import (
    FILLER_SIZE_MIN,
    Room,
    StandIn,
    filler_records,
    place,
    stand_in_record,
)
from aerobee.store.repair.verify import Verified


class RecordSteps:
    """Made for one plan; collects information along with the steps."""

    def __init__(self, verified: Verified, archive_folder: str) -> None:
        self._verified = verified
        self._folder = verified.folder
        self._archive_folder = archive_folder
        self._log = LogReader(verified.folder)
        self.queues_to_rebuild: dict[QueueName, str] = {}
        self.left: list[str] = []
        # Whether index entries point to positions where no record starts any more.
        self.moves_keys = False

    # ------------------------------------------------------------------------------ quarantine

    def quarantine(self, region: DamagedRegion) -> Iterator[Step]:
        """Fill the region with whole records."""
        segment_end = region.segment_base + self._folder.segment_bytes
        reaches_end = region.end == segment_end
        end = region.end - BLANK_SIZE_MIN if reaches_end else region.end
        known = list(_placed(region))
        messages, rooms, homeless = place(region.start, end, known, list(_unplaced(region)))
        messages, rooms = self._close_small_rooms(messages, rooms)
        placed = {(each.topic, each.queue_id, each.queue_offset, each.position) for each in known}
        for message in [*messages, *homeless]:
            name = message.topic, message.queue_id, message.queue_offset, message.position
            if name not in placed:
                self._rebuild(message, "a damaged record's place was not known")
                self.moves_keys = True
        for message in homeless:
            self.left.append(
                f"offset {message.queue_offset} of queue {message.queue_id} of {message.topic} is "
                "missing: there was no room for an empty message in its place"
            )
        blank_start = end
        if reaches_end and rooms and rooms[-1].end == end:
            blank_start = rooms.pop().start  # the filler of the segment's end takes it
        self.moves_keys |= bool(rooms)
        path = self._log.path_of(region.start)
        position = region.start - region.segment_base
        kept_at = f"{self._archive_folder}/bytes/{path.replace('/', '-')}-{position:020d}"
        times = self._times_around(region)
        pieces = [
            *self._stand_ins(messages, kept_at, times),
            *self._fillers(rooms, times[0]),
        ]
        if reaches_end:
            pieces.append((blank_start, blank_record(segment_end - blank_start)))
        lost = region.lost()
        yield Overwrite(
            path,
            self._text_of(region, messages, lost),
            region.end - region.start,
            position,
            lost,
            what="quarantine",
            pieces=[(at - region.segment_base, data) for at, data in sorted(pieces)],
        )

    @staticmethod
    def _text_of(region: DamagedRegion, messages: list[StandIn], lost: list[LostRange]) -> str:
        if not messages and region.kind is Kind.LOG_BLANK_WRONG:
            return "write the filler at the segment's end again"
        count = sum(each.count for each in lost)
        return (
            f"put {len(messages)} empty messages in the place of {count} damaged ones "
            f"({region.reason})"
        )

    def _stand_ins(
        self, messages: list[StandIn], kept_at: str, times: tuple[int, int]
    ) -> Iterator[tuple[int, bytes]]:
        low, high = times
        for message in messages:
            original = self._log.read(message.position, message.size)
            record = stand_in_record(
                message, original, kept_at=kept_at, store_timestamp_ms=(low, high)
            )
            low = max(low, Record(record).store_timestamp_ms)
            yield message.position, record

    @staticmethod
    def _fillers(rooms: list[Room], store_timestamp_ms: int) -> Iterator[tuple[int, bytes]]:
        for room in rooms:
            at = room.start
            for record in filler_records(room.start, room.end - room.start, store_timestamp_ms):
                yield at, record
                at += len(record)

    def _close_small_rooms(
        self, messages: list[StandIn], rooms: list[Room]
    ) -> tuple[list[StandIn], list[Room]]:
        """Rooms too small for any record go to the message before or after."""
        large: list[Room] = []
        for room in rooms:
            size = room.end - room.start
            if size >= FILLER_SIZE_MIN:
                large.append(room)
                continue
            index = next(
                (
                    index
                    for index, message in enumerate(messages)
                    if room.start in (message.position + message.size,)
                    or room.end == message.position
                ),
                None,
            )
            if index is None:
                large.append(room)
                continue
            old = messages[index]
            start = min(old.position, room.start)
            messages[index] = StandIn(
                old.topic, old.queue_id, old.queue_offset, start, old.size + size
            )
            self._rebuild(old, "a damaged record's size was not known")
        return messages, large

    def _rebuild(self, message: StandIn, why: str) -> None:
        self.queues_to_rebuild[message.topic, message.queue_id] = why

    def _times_around(self, region: DamagedRegion) -> tuple[int, int]:
        """Store times of the neighbours: no stand-in may be older or newer."""
        low = region.store_timestamp_ms
        size = int.from_bytes(self._log.read(region.end, 4), "big", signed=True)
        behind = self._log.record_at(region.end, size)
        high = 0 if behind is None else behind.store_timestamp_ms
        low = low or high or 1
        return low, max(low, high)

    # ------------------------------------------------------------------------------ fields

    def fix_headers(self, *, behind: int | None) -> Iterator[Step]:
        """Correct what queues know better; records after a cut are left out."""
        damage = self._verified.damage
        fixes = {fix.position: fix for fix in damage.header_fixes}
        for position in sorted({*fixes, *(at for at, _ in damage.property_crc_wrong)}):
            if behind is not None and position >= behind:
                continue
            if any(region.start <= position < region.end for region in damage.regions):
                continue
            fix = fixes.get(position)
            size = fix.size if fix else dict(damage.property_crc_wrong)[position]
            yield from self._fix(position, size, fix)

    def _fix(self, position: int, size: int, fix: HeaderFix | None) -> Iterator[Step]:
        data = bytearray(self._log.read(position, size))
        try:
            record = Record(data, 0, size)
            record.check()
        except RecordCorrupt:
            return
        if fix is not None:
            topic = fix.topic.encode()
            at = record.start + size - len(record.properties_bytes) - 2 - len(topic)
            data[at : at + len(topic)] = topic
            struct.pack_into(">i", data, QUEUE_ID_AT, fix.queue_id)
            struct.pack_into(">i", data, SYS_FLAG_AT, record.sys_flag & ~fix.flags_cleared)
            struct.pack_into(">q", data, QUEUE_OFFSET_AT, fix.queue_offset)
            struct.pack_into(">q", data, PHYSICAL_OFFSET_AT, position)
        if b"__CRC32#\x01" in data[-20:]:
            write_property_crc(data, 0, size)
        in_file = self._log.in_file(position)
        yield Overwrite(
            self._log.path_of(position),
            f"correct the fields of the record at log position {position}",
            size,
            in_file,
            what="correct record",
            pieces=[(in_file, bytes(data))],
        )


def _placed(region: DamagedRegion) -> Iterator[StandIn]:
    for placed in region.placed:
        columns = (placed.offsets.tolist(), placed.positions.tolist(), placed.sizes.tolist())
        for offset, position, size in zip(*columns, strict=True):
            yield StandIn(placed.topic, placed.queue_id, offset, position, size)


def _unplaced(region: DamagedRegion) -> Iterator[StandIn]:
    for gap in region.unplaced:
        for offset in range(gap.first, gap.end):
            yield StandIn(gap.topic, gap.queue_id, offset, 0, 0)
