"""A link that loses, repeats, swaps and damages frames gets no wrong byte into a slave's log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.edge.replicas.message_streams import MasterMessages, SlaveMessages
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.runtime.errors import AerobeeError, Unreachable
from tests.support.replicas import check_equal, log_bytes
from tests.support.replication_streams import KIB, STORE, Master, running_master, running_slave
from tests.support.stores import batch_of

Frames = asyncio.Queue[bytes | None]


class FaultyEnd:
    """One side's view of a link between two queues; what it writes may suffer."""

    def __init__(self, incoming: Frames, outgoing: Frames, chance: random.Random, faults: float):
        self._incoming = incoming
        self._outgoing = outgoing
        self._chance = chance
        self._faults = faults
        self._kept: bytes | None = None

    async def read(self) -> bytes | None:
        return await self._incoming.get()

    def write_at_once(self, frame: bytes) -> bool:
        return False

    async def write(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        chance, kept = self._chance, self._kept
        self._kept = None
        if chance.random() >= self._faults:
            await self._outgoing.put(frame)
        else:
            match chance.choice(("lose", "repeat", "swap", "flip", "cut", "end")):
                case "repeat":
                    await self._outgoing.put(frame)
                    await self._outgoing.put(frame)
                case "swap":
                    self._kept = frame
                case "flip":
                    at = chance.randrange(len(frame))
                    flipped = bytes([frame[at] ^ 1 << chance.randrange(8)])
                    await self._outgoing.put(frame[:at] + flipped + frame[at + 1 :])
                case "cut":
                    await self._outgoing.put(frame[: chance.randrange(len(frame))])
                case "end":
                    await self._outgoing.put(None)
        if kept is not None:
            await self._outgoing.put(kept)


class FaultyLink:
    """Streams straight to a master's sender."""

    def __init__(self, master: Master, chance: random.Random) -> None:
        self._master = master
        self._chance = chance
        self.faults = 0.02
        self.endings: list[str] = []

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[SlaveMessages]:
        up: Frames = asyncio.Queue()
        down: Frames = asyncio.Queue(maxsize=4)
        serving = asyncio.create_task(
            self._serve(FaultyEnd(up, down, self._chance, self.faults), down)
        )
        try:
            yield SlaveMessages(FaultyEnd(down, up, self._chance, self.faults))
        finally:
            serving.cancel()
            await asyncio.wait((serving,))
            if not serving.cancelled():
                serving.result()

    async def _serve(self, end: FaultyEnd, down: Frames) -> None:
        try:
            await self._master.sender.serve(MasterMessages(end))
        except AerobeeError as error:
            self.endings.append(type(error).__name__)
        finally:
            while down.full():
                down.get_nowait()
            down.put_nowait(None)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_link_does_the_logs_become_equal(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = replace(STORE, segment_bytes=64 * KIB)
    limits: dict[str, Any] = {
        "chunk_bytes": 3_001,
        "window_bytes": 20_000,
        "heartbeat_interval_s": 0.02,
    }
    async with running_master(tmp_path / "m", config, **limits) as master:
        link = FaultyLink(master, chance)
        async with running_slave(tmp_path / "s", config, connect=link.connect, **limits) as slave:
            acknowledged = master.roles.replica_acknowledged

            def note(name: ReplicaName, end: int) -> None:
                assert end <= slave.store.appended_end, "only what is stored is acknowledged"
                acknowledged(name, end)

            master.roles.replica_acknowledged = note  # type: ignore[method-assign]
            for number in range(150):
                size = chance.choice((10, 700, 2_000, 30_000))
                master.store.append(batch_of("t", bytes([number]) * size), queue_id=number % 3)
            master.roles.advance()
            endings: list[str] = []
            while slave.store.confirmed_end < master.store.appended_end:
                if len(endings) > 40:
                    link.faults = 0.0
                try:
                    async with asyncio.timeout(0.5):
                        await slave.follow("")
                except AerobeeError as error:
                    endings.append(type(error).__name__)
                except TimeoutError:
                    await slave.stop()
                end = slave.store.appended_end
                assert log_bytes(slave.store) == log_bytes(master.store, 0, end)
            check_equal(master.store, slave.store)
            await slave.stop()
            assert not master.sender.connected
            assert {"ReplicationGap", "CorruptFrame"} <= {*endings, *link.endings}


async def test_a_link_that_hangs_is_given_up_on_both_sides(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with running_master(tmp_path / "m", heartbeat_interval_s=0.05) as master:
        link = FaultyLink(master, chance)
        link.faults = 0.0
        async with running_slave(
            tmp_path / "s", connect=link.connect, heartbeat_interval_s=0.05
        ) as slave:
            following = slave.follow("")
            while not slave.follower.is_connected:
                await asyncio.sleep(0.01)

            async def hang(end: FaultyEnd, frame: bytes) -> None:
                await asyncio.Event().wait()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FaultyEnd, "write", hang)
                with pytest.raises(Unreachable, match=r"sent nothing|ended the stream"):
                    await asyncio.wait_for(following, 5)
            assert not master.sender.connected
