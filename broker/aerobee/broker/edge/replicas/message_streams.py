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
from aerobee.broker.replication.messages import Ack, MasterMessage, Said, SlaveMessage


class FrameStream(Protocol):
    """One side's view of a replication stream; messages as bytes, in order."""

    async def read(self) -> bytes | None:
        """The next message; None when the other side has ended the stream. Raises AerobeeError."""
        ...

    async def write(self, frame: bytes) -> None:
        """Returns when the next one may be written. Raises AerobeeError."""
        ...


class SlaveFrames(FrameStream, Protocol):
    """The slave's view."""

    def write_at_once(self, frame: bytes) -> bool:
        """As `write` if that needs no waiting; otherwise False, and nothing was done."""
        ...


class SlaveMessages:
    """The slave's end."""

    def __init__(self, frames: SlaveFrames) -> None:
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

    def acknowledge_at_once(self, ack: Ack) -> bool:
        """Write it under the name of the last message, if that needs no waiting."""
        return self._sender is not None and self._frames.write_at_once(self._writer.ack(*ack))


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
