"""A slave that sends anything a test wants, frame by frame, even invalid frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from isal.isal_zlib import crc32

from aerobee.broker.edge.replicas.frames import FrameWriter, read_masters
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import (
    LogState,
    Sender,
)
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import Hello
from aerobee.cluster_view.methods import REPLICATE
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.v1 import replication_pb2
from tests.support.grpcio_client import build_channel
from tests.support.replication_streams import (
    CLUSTER,
    GROUP,
    MIB,
    STORE,
    Master,
)

SENDER = Sender(CLUSTER, GROUP, 1)
EMPTY = LogState(0, 0, EpochHistory(), STORE.segment_bytes)
NAME = ReplicaName(1, "incarnation-1")
Status = tuple[str, int]


class BareSlave:
    """One call, frame by frame."""

    def __init__(self, channel: grpc.aio.Channel, sender: Sender = SENDER) -> None:
        self.frames = FrameWriter(sender)
        self.call: Any = channel.stream_stream(REPLICATE.path)()

    async def write(self, frame: bytes) -> None:
        await self.call.write(frame)

    async def hello(
        self, state: LogState = EMPTY, name: ReplicaName = NAME, **changes: Any
    ) -> None:
        hello = Hello(state, name, "instance", window_bytes=MIB, tables={})
        event = replication_pb2.ReplicaEvent.FromString(self.frames.hello(hello))
        event.hello.MergeFrom(replication_pb2.ReplicaHello(**changes))
        event.header.checksum = crc32(event.hello.SerializeToString(deterministic=True))
        await self.write(event.SerializeToString())

    async def event(self) -> Any:
        data = await asyncio.wait_for(self.call.read(), 5)
        assert data is not grpc.aio.EOF
        read_masters(data)
        return replication_pb2.MasterEvent.FromString(data)

    async def bytes(self) -> Any:
        """The next log bytes."""
        while (event := await self.event()).WhichOneof("event") != "bytes":
            pass
        return event.bytes

    async def ending(self) -> Status:
        """The gRPC status and Aerobee's code with which the stream ended."""
        code = await asyncio.wait_for(self.call.code(), 5)
        metadata = dict(await self.call.trailing_metadata())
        details = await self.call.details()
        assert details.strip(), "the reason is told"
        return code.name, int(metadata[CODE_METADATA_KEY])

    def cancel(self) -> None:
        self.call.cancel()


@asynccontextmanager
async def bare_slave(master: Master, sender: Sender = SENDER) -> AsyncIterator[BareSlave]:
    async with build_channel(master.address) as channel:
        slave = BareSlave(channel, sender)
        try:
            yield slave
        finally:
            slave.cancel()


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory.of(entries)


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes([frame[-1] ^ 1])
