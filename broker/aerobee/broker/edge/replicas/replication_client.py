"""The slave's call to its master, as a stream of bytes; gRPC's errors become typed ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from aerobee.broker.replication.stream_tasks import FrameStream
from aerobee.runtime.call_context import current_ids
from aerobee.runtime.errors import MqError, Unreachable
from aerobee.runtime.rpc import build_channel, error_from_rpc

METHOD = "/aerobee.v1.ReplicationService/Replicate"

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class _MasterFrames:
    """One call, as the follower sees it."""

    def __init__(self, call: Call, address: str) -> None:
        self._call = call
        self._address = address

    async def read(self) -> bytes | None:
        try:
            data: Any = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, self._address) from None
        return None if data is grpc.aio.EOF else data

    async def write(self, frame: bytes) -> None:
        try:
            await self._call.write(frame)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, self._address) from None
        except asyncio.InvalidStateError:
            raise await self._why_over() from None

    async def _why_over(self) -> MqError:
        """The call has ended before the write: its status says why."""
        try:
            await self._call.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error, self._address)
        return Unreachable(f"{self._address} ended the stream")


@asynccontextmanager
async def connect_to_master(address: str) -> AsyncIterator[FrameStream]:
    """A stream of its own connection; what goes wrong is raised by its `read` and `write`."""
    async with build_channel(address, own_connection=True) as channel:
        replicate: Any = channel.stream_stream(METHOD)
        call: Call = replicate(metadata=current_ids().metadata())
        try:
            yield _MasterFrames(call, address)
        finally:
            call.cancel()
