"""A stream of frames as one of messages: for a slave and for its master."""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.edge.replicas.frames import (
    FrameWriter,
    LogPartReader,
    read_masters,
    read_slaves,
)
from aerobee.broker.replication.joining import Sender
from aerobee.broker.replication.messages import MasterMessage, Said, SlaveMessage


class FrameStream(Protocol):
    """One side's view of a replication stream; messages as bytes, in order."""

    async def read(self) -> bytes | None:
        """The next message; None when the other side has ended the stream. Raises AerobeeError."""
        ...

    async def write(self, frame: bytes) -> None:
        """Returns when the next one may be written. Raises AerobeeError."""
        ...


class SlaveMessages:
    """The slave's end."""

    def __init__(self, frames: FrameStream) -> None:
        self._frames = frames
        self._sender: Sender | None = None
        self._writer: FrameWriter
        self._parts: LogPartReader

    async def read(self) -> Said[MasterMessage] | None:
        data = await self._frames.read()
        if data is None:
            return None
        if self._sender is not None:
            part = self._parts.read(data)
            if part is not None:
                return Said(self._sender, part)
        return read_masters(data)

    async def write(self, sender: Sender, message: SlaveMessage) -> None:
        if sender != self._sender:
            self._sender, self._writer = sender, FrameWriter(sender)
            # A master answers under the name by which it was called.
            self._parts = LogPartReader(sender)
        await self._frames.write(self._writer.slaves(message))


class MasterMessages:
    """The master's end."""

    def __init__(self, frames: FrameStream) -> None:
        self._frames = frames
        self._sender: Sender | None = None
        self._writer: FrameWriter

    async def read(self) -> Said[SlaveMessage] | None:
        data = await self._frames.read()
        return None if data is None else read_slaves(data)

    async def write(self, sender: Sender, message: MasterMessage) -> None:
        if sender != self._sender:
            self._sender, self._writer = sender, FrameWriter(sender)
        await self._frames.write(self._writer.masters(message))
