"""What a master may not say: the slave leaves it with a named error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.broker.edge.replicas.frames import FrameWriter
from aerobee.broker.edge.replicas.message_streams import SlaveMessages
from aerobee.broker.replication.joining import (
    GoOn,
    LogState,
    Sender,
)
from aerobee.broker.replication.messages import Agreement
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.errors import (
    AerobeeError,
    CorruptFrame,
    ForeignCluster,
    InvalidArgument,
    ReplicaDiverged,
    ReplicationGap,
    StaleEpoch,
    Unreachable,
)
from tests.support.bare_slave import SENDER, damaged, history
from tests.support.replication_streams import (
    CLUSTER,
    GROUP,
    MIB,
    STORE,
    running_slave,
)
from tests.support.stores import batch_of


class ScriptedMaster:
    """What a master says, frame by frame; what the slave says is kept."""

    def __init__(self, *frames: bytes | None) -> None:
        self.frames = list(frames)
        self.heard: list[bytes] = []

    async def read(self) -> bytes | None:
        if not self.frames:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return self.frames.pop(0)

    def write_at_once(self, frame: bytes) -> bool:
        return False

    async def write(self, frame: bytes) -> None:
        self.heard.append(frame)

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[SlaveMessages]:
        yield SlaveMessages(self)


FRAMES = FrameWriter(SENDER)
MASTERS = LogState(0, 10_000, history((1, 0)), STORE.segment_bytes)
AGREED = FRAMES.agreement(Agreement.of(MASTERS, GoOn(0), ()))


def agreed(state: LogState = MASTERS, start: int = 0, sender: Sender = SENDER) -> bytes:
    return FrameWriter(sender).agreement(Agreement.of(state, GoOn(start), ()))


@pytest.mark.parametrize(
    ("frames", "error", "words"),
    [
        ([agreed(sender=Sender("other", GROUP, 1))], ForeignCluster, "other"),
        ([agreed(sender=Sender(CLUSTER, GROUP, 2))], StaleEpoch, "epoch 2"),
        ([agreed(replace(MASTERS, epochs=history((2, 0))))], StaleEpoch, "newest is 2"),
        ([agreed(start=5)], ReplicationGap, "continue at 5"),
        ([agreed(replace(MASTERS, end=-1))], InvalidArgument, "cannot begin"),
        ([FRAMES.heartbeat(0, 0)], InvalidArgument, "agreement"),
        ([damaged(AGREED)], CorruptFrame, "damaged"),
        ([None], Unreachable, "ended the stream"),
        ([], Unreachable, "did not answer"),
        ([AGREED, None], Unreachable, "ended the stream"),
        ([AGREED], Unreachable, "sent nothing"),
        ([AGREED, AGREED], InvalidArgument, "second agreement"),
        ([AGREED, FRAMES.log_bytes(5, b"x", 0, 9_000)], ReplicationGap, "at 5"),
        ([AGREED, damaged(FRAMES.log_bytes(0, b"x", 0, 9_000))], CorruptFrame, "damaged"),
        ([AGREED, FRAMES.log_bytes(0, b"no record at all" * 9, 0, 9_000)], CorruptFrame, "at 0"),
        ([AGREED, FRAMES.heartbeat(20_000, 10_000)], ReplicationGap, "confirmed up to 20000"),
        (
            [AGREED, FrameWriter(Sender(CLUSTER, GROUP, 0)).heartbeat(0, 0)],
            StaleEpoch,
            "epoch 0",
        ),
        (
            [AGREED, FrameWriter(Sender(CLUSTER, "broker-b", 1)).heartbeat(0, 0)],
            ForeignCluster,
            "broker-b",
        ),
        ([AGREED, FRAMES.log_bytes(0, b"x" * 49 * MIB, 0, 9_000)], InvalidArgument, "window"),
    ],
)
async def test_a_master_that_breaks_the_protocol_is_left(
    tmp_path: Path, frames: list[bytes | None], error: type[AerobeeError], words: str
) -> None:
    script = ScriptedMaster(*frames)
    async with running_slave(
        tmp_path / "s", connect=script.connect, heartbeat_interval_s=0.1
    ) as slave:
        with pytest.raises(error, match=words) as raised:
            await asyncio.wait_for(slave.follow("master:1"), 5)
        assert type(raised.value) is error
        assert slave.follower.trouble == str(raised.value)
        assert not slave.follower.is_connected
        assert slave.store.appended_end == 0


async def test_a_master_without_the_slaves_epochs_is_left(tmp_path: Path) -> None:
    """What the master should have refused, the slave refuses, too."""
    script = ScriptedMaster(agreed(replace(MASTERS, epochs=history((1, 7)))))
    async with running_slave(tmp_path / "s", connect=script.connect) as slave:
        slave.store.append(batch_of("t", b"mine"), queue_id=0)
        slave.history = history((1, 0))
        with pytest.raises(ReplicaDiverged):
            await slave.follow("master:1")
        assert not slave.adopted


async def test_a_master_that_proves_nothing_is_not_followed(tmp_path: Path) -> None:
    """An older version does not know of the comparison."""
    script = ScriptedMaster()
    async with running_slave(tmp_path / "s", connect=script.connect) as slave:
        slave.history = history((1, 0))
        end = slave.store.append(batch_of("t", b"mine"), queue_id=0).end
        script.frames.append(agreed(start=end))
        with pytest.raises(InvalidArgument, match="the same version"):
            await slave.follow("master:1")
        assert not slave.adopted


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:1"])
async def test_a_master_that_is_not_there_is_unreachable(tmp_path: Path, address: str) -> None:
    async with running_slave(tmp_path / "s") as slave:
        with pytest.raises(Unreachable):
            await asyncio.wait_for(slave.follow(address), 5)


async def test_a_servers_other_errors_are_told_as_they_are(tmp_path: Path) -> None:
    """Something else listens at the master's address."""
    server = RpcServer(say_error, [])
    port = await server.start("127.0.0.1:0")
    async with running_slave(tmp_path / "s") as slave:
        with pytest.raises(AerobeeError, match="UNIMPLEMENTED"):
            await slave.follow(f"127.0.0.1:{port}")
    await server.stop(0)
