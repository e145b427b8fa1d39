"""Neither side of a replication stream waits for the other one without a limit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.broker.edge.replicas.frames import FrameWriter
from aerobee.broker.edge.replicas.message_streams import MasterMessages, SlaveMessages
from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState, Sender
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import Hello
from aerobee.runtime.errors import Unreachable
from tests.support.replication_streams import (
    CLUSTER,
    GROUP,
    MIB,
    STORE,
    running_master,
    running_slave,
)
from tests.support.stores import batch_of


class NobodyReads:
    """A stream whose other side takes nothing; it has said `frame` before."""

    def __init__(self, frame: bytes = b"") -> None:
        self._frame = frame
        self.writes = 0

    async def read(self) -> bytes | None:
        frame, self._frame = self._frame, b""
        if not frame:
            await asyncio.Event().wait()
        return frame

    def write_at_once(self, frame: bytes) -> bool:
        return False

    async def write(self, frame: bytes) -> None:
        self.writes += 1
        await asyncio.Event().wait()

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[SlaveMessages]:
        yield SlaveMessages(self)


async def test_a_slave_does_not_wait_for_ever_for_a_master_that_takes_no_hello(
    tmp_path: Path,
) -> None:
    mute = NobodyReads()
    async with running_slave(tmp_path / "s", connect=mute.connect, connect_s=0.2) as slave:
        with pytest.raises(Unreachable, match=r"read nothing within 0\.2 s"):
            await asyncio.wait_for(slave.follow("master:1"), 5)
    assert mute.writes == 1


@pytest.mark.slow
async def test_a_slave_leaves_an_address_that_takes_connections_and_says_nothing(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        async with running_slave(tmp_path / "s") as slave:
            with pytest.raises(Unreachable):
                await asyncio.wait_for(slave.follow(address), StreamLimits().connect_s + 2)


async def test_a_master_does_not_wait_for_ever_for_a_slave_that_takes_no_agreement(
    tmp_path: Path,
) -> None:
    async with running_master(tmp_path / "m", heartbeat_interval_s=0.1) as master:
        master.append(batch_of("t", b"x"))
        epochs = EpochHistory.of([(1, 0)])
        ahead = LogState(0, 2 * master.store.appended_end, epochs, STORE.segment_bytes)
        hello = Hello(ahead, ReplicaName(1, "log-1"), "i", window_bytes=MIB, tables={})
        mute = NobodyReads(FrameWriter(Sender(CLUSTER, GROUP, 1)).hello(hello))
        with pytest.raises(Unreachable, match="read nothing within"):
            await asyncio.wait_for(master.sender.serve(MasterMessages(mute)), 5)
        assert mute.writes == 1
