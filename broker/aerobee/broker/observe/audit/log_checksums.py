"""Checksums over ranges of the log, so that an audit can compare replicas without their bytes.

Ranges are on a grid that is the same in all replicas, and end at what is confirmed. Of the blank
record that fills a segment only the head counts: the bytes after it have no meaning, and replicas
do not copy them. The log is read on the read pool in small pieces, each in its turn and at the pace
of readers that are far behind, so that sends are not slowed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from isal.isal_zlib import crc32

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.runtime.errors import AerobeeError, InvalidArgument, MessageNotFound
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record_layout import BLANK_SIZE_MIN, blank_position

READER = "checksums of the log"
RANGE_BYTES_DEFAULT = 64 * 1024 * 1024
RANGE_BYTES_MIN = 4_096
PIECE_BYTES = 1024 * 1024
"""Read and summed on a thread in one turn, while no messages are being sent."""
BLANK_BYTES_MAX = 16 * 1024 * 1024
"""How far before a segment's end its blank record is searched for: no record is longer."""


@dataclass(frozen=True, slots=True)
class RangeChecksum:
    """CRC-32 of the log's bytes [begin, end), or why they cannot be read."""

    begin: int
    end: int
    checksum: int = 0
    fault: AerobeeError | None = None


class LogChecksums:
    """On the loop."""

    def __init__(self, store: MessageStore, reads: ReadPool) -> None:
        self._store = store
        self._reads = reads

    async def ranges(
        self, begin: int, end: int, range_bytes: int
    ) -> AsyncGenerator[RangeChecksum, None]:
        """The ranges of [begin, end), oldest first. An `end` below 0 means the confirmed end,
        `range_bytes` 0 means 64 MiB.

        Raises:
            InvalidArgument: ranges so small that there would be too many.
        """
        range_bytes = range_bytes or RANGE_BYTES_DEFAULT
        if range_bytes < RANGE_BYTES_MIN:
            raise InvalidArgument(
                f"ranges of {range_bytes} bytes are too small: ask for at least {RANGE_BYTES_MIN}"
            )
        store = self._store
        confirmed_end = store.confirmed_end
        end = confirmed_end if end < 0 else min(end, confirmed_end)
        position = max(begin, store.min_offset)
        fillings: dict[int, int] = {}
        while position < end:
            range_end = min(end, position - position % range_bytes + range_bytes)
            yield await self._checksum(position, range_end, fillings)
            position = range_end

    async def _checksum(self, begin: int, end: int, fillings: dict[int, int]) -> RangeChecksum:
        """`fillings`: those already known, by the end of their segment."""
        checksum, position = 0, begin
        try:
            while position < end:
                segment_end = self._store.log.contiguous_end(position)
                if segment_end <= position:  # the log was cut since the ranges were requested
                    raise MessageNotFound(
                        f"the log ends at {position} now, within the range [{begin}, {end}): ask "
                        "for its checksums again"
                    )
                if segment_end not in fillings:
                    fillings[segment_end] = await self._filling(position, segment_end)
                counted_end = min(end, fillings[segment_end])
                if position >= counted_end:
                    position = segment_end
                    continue
                size = min(counted_end - position, self._piece_bytes())
                checksum = await self._add(position, size, checksum)
                position += size
        except AerobeeError as error:
            return RangeChecksum(begin, end, fault=error)
        return RangeChecksum(begin, end, checksum)

    async def _filling(self, position: int, segment_end: int) -> int:
        """Where the bytes of the segment that belong to no record begin; its end if none do."""
        if segment_end > self._store.confirmed_end:
            return segment_end
        base = max(each.base for each in self._store.log.segments() if each.base <= position)
        begin = max(base, segment_end - BLANK_BYTES_MAX)
        tail = bytearray()
        while begin + len(tail) < segment_end:
            at = begin + len(tail)
            tail += await self._read((at, min(segment_end - at, self._piece_bytes())))
        blank = blank_position(tail)
        return segment_end if blank is None else begin + blank + BLANK_SIZE_MIN

    def _piece_bytes(self) -> int:
        return self._reads.step_bytes if self._reads.spares_sends() else PIECE_BYTES

    async def _add(self, position: int, size: int, checksum: int) -> int:
        store, runs = self._store, ((position, size),)
        added: int = await self._reads.run_in_turn(
            READER, size, lambda: crc32(store.log.read(runs), checksum)
        )
        self._reads.spend(size)
        return added

    async def _read(self, run: tuple[int, int]) -> bytes:
        read: bytes = await self._reads.run_in_turn(
            READER, run[1], lambda: self._store.log.read((run,))
        )
        self._reads.spend(run[1])
        return read
