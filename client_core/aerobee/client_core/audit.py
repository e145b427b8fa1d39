"""What an audit asks single brokers, by address: readings of offsets, checksums of the log.

Answers come in columns, as packed by the broker: see `aerobee.v1.audit`. No other broker is asked
instead, because an audit wants to know what this particular replica has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from google.protobuf.message import Message

from aerobee.cluster_view.channels import Channels, ServerStream
from aerobee.cluster_view.methods import CHECKSUM_LOG, SNAPSHOT
from aerobee.runtime import errors
from aerobee.v1 import audit_pb2

R = TypeVar("R", bound=Message)

ANSWER_TIMEOUT_MS = 30_000


class Audit:
    """Reads what brokers know: `async for part in Audit(channels).snapshot(address, request)`."""

    def __init__(self, channels: Channels, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> None:
        """`timeout_ms` limits the wait for each part, not the whole: a broker may have many."""
        self._channels = channels
        self._timeout_ms = timeout_ms

    async def snapshot(
        self, address: str, request: audit_pb2.SnapshotRequest
    ) -> AsyncGenerator[audit_pb2.SnapshotPart, None]:
        """The parts of one reading; the last one is `end`.

        Raises:
            Unreachable: no connection, it broke, or the reading ended before its end.
            DeadlineExceeded: the next part did not come in time. Busy, ShuttingDown, StoreFailed.
            AerobeeError: the broker's version does not support audits.
        """
        stream = self._channels.open_server_stream(address, SNAPSHOT, request)
        is_whole = False
        async for part in self._answers(stream):
            is_whole = part.HasField("end")
            yield part
        if not is_whole:
            raise errors.Unreachable(f"the reading of {address} ended before its last part")

    async def checksums(
        self, address: str, begin: int = 0, end: int = -1, *, range_bytes: int = 0
    ) -> AsyncGenerator[audit_pb2.LogChecksum, None]:
        """CRC-32 of each range of the broker's log, oldest first.

        Args:
            begin, end: log offsets; an end of -1: as far as the log is confirmed.
            range_bytes: ranges start at multiples of it; 0: 64 MiB.

        Raises:
            InvalidArgument: ranges that are too small.
            Unreachable, DeadlineExceeded, ShuttingDown, StoreFailed, AerobeeError.
        """
        request = audit_pb2.ChecksumLogRequest(begin=begin, end=end, range_bytes=range_bytes)
        stream = self._channels.open_server_stream(address, CHECKSUM_LOG, request)
        async for answer in self._answers(stream):
            yield answer

    async def _answers(self, stream: ServerStream[R]) -> AsyncGenerator[R, None]:
        """Until the server ends the stream; cancelled with its reader."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._timeout_ms / 1_000) as scope:
                        answer = await stream.read()
                except TimeoutError:
                    if not scope.expired():
                        raise
                    raise errors.DeadlineExceeded(
                        f"{stream.address} did not answer within {self._timeout_ms} ms"
                    ) from None
                if answer is None:
                    return
                yield answer
        finally:
            stream.cancel()
