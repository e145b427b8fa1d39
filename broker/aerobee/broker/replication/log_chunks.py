"""The log in chunks for one slave: from memory on the loop, from disk on the read pool. Also
checksums of it, so that two replicas can compare their logs.

Owns: how fast a slave that is far behind is served while messages come in: at most at its rate, in
smaller pieces, so that no send waits long for the loop. Also owns what was read from disk beyond
the chunk that the slave got, as disks and threads prefer larger pieces.
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32

from aerobee.broker.cold_reads.pace import Pace
from aerobee.broker.cold_reads.read_pool import STEP_BYTES, ReadPool
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageNotFound, ReplicationGap
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.format.record_layout import MAGIC_BLANK

COLD_READ_BYTES = 2 * 1024 * 1024

_HEAD = struct.Struct(">ii")  # a record's size and magic number


class LogChunks:
    def __init__(
        self,
        log: CommitLog,
        pool: ReadPool,
        clock: Clock,
        *,
        reader: str,
        chunk_bytes: int,
        bytes_per_s: int,
    ) -> None:
        """`reader`: the slave's name among the pool's readers."""
        self._log = log
        self._pool = pool
        self._clock = clock
        self._reader = reader
        self._chunk_bytes = chunk_bytes
        self._pace = Pace(bytes_per_s)
        self._loaded = b""
        self._loaded_from = 0

    def wait_s(self, *, in_sync: bool) -> float:
        """How long until the next chunk may be read; 0: it may be read now."""
        if in_sync or not self._pool.spares_sends():
            self._pace.clear()
            return 0.0
        return self._pace.wait_s(self._clock.monotonic_s())

    async def read(self, position: int, bytes_max: int, *, in_sync: bool) -> bytes:
        """The next bytes, starting at `position`, at least one.

        Raises:
            ReplicationGap: they are gone.
            AerobeeError: the disk cannot be read.
        """
        size = min(self._contiguous_end(position) - position, bytes_max, self._chunk_bytes)
        if not in_sync and self._pool.spares_sends():
            size = min(size, STEP_BYTES)
            self._pace.start(self._clock.monotonic_s(), size)
        return await self._bytes(position, size)

    async def checksum(self, begin: int, end: int) -> int:
        """CRC-32 of the bytes from `begin` to `end`, as both logs have them. Raises as `read`."""
        checksum, position = 0, begin
        while position < end:
            data = await self.read(position, end - position, in_sync=True)
            checksum = crc32(data, checksum)
            position += len(data)
        return checksum

    async def record_end(self, position: int) -> int:
        """Where the record that begins at `position` ends; for a blank record, the next one's end,
        because a slave stores both together. Raises as `read`."""
        while True:
            size, magic = _HEAD.unpack(await self._bytes(position, _HEAD.size))
            position += size
            if magic != MAGIC_BLANK or position >= self._log.end:
                return position

    def _contiguous_end(self, position: int) -> int:
        try:
            return self._log.contiguous_end(position)
        except MessageNotFound as error:
            raise _removed(position) from error

    async def _bytes(self, position: int, size: int) -> bytes:
        """Within one segment."""
        at = position - self._loaded_from
        if at >= 0 and at + size <= len(self._loaded):
            return self._loaded[at : at + size]
        try:
            data = self._log.read_nowait(((position, size),))
            if data is None:
                data = (await self._load(position, size))[:size]
            elif at >= len(self._loaded):
                self._loaded = b""  # it is in the past
        except MessageNotFound as error:
            raise _removed(position) from error
        return data

    async def _load(self, position: int, size: int) -> bytes:
        size = max(size, min(self._contiguous_end(position) - position, COLD_READ_BYTES))
        runs = ((position, size),)
        self._loaded = await self._pool.run_in_turn(
            self._reader, size, lambda: self._log.read(runs)
        )
        self._loaded_from = position
        return self._loaded


def _removed(position: int) -> ReplicationGap:
    return ReplicationGap(
        f"the log's bytes at {position} were removed before the slave had them: it starts again "
        "where the log begins"
    )
