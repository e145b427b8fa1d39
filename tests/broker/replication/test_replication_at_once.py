"""A slave's usual part of the log is stored and acknowledged as it comes; a slave under synchronous
flush, or one whose disk is full, waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from aerobee.broker.replication.config import StreamLimits
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import LogState, Sender
from aerobee.broker.replication.log_copy import LogCopy, SlaveSide
from aerobee.broker.replication.messages import Ack, LogPart, MasterMessage, Said
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import FlushMode
from tests.support.replication_streams import CLUSTER, GROUP, STORE, Replica, running_replica
from tests.support.stores import batch_of
from tests.support.waiting import until

SENDER = Sender(CLUSTER, GROUP, 1)


class Scripted:
    """A master that says what it is given; notes what the slave says and hears, in order."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.said: asyncio.Queue[MasterMessage] = asyncio.Queue()
        self.noted: list[tuple[str, int]] = []

    async def read(self) -> Said[MasterMessage] | None:
        return Said(SENDER, await self.said.get())

    async def write(self, sender: Sender, message: Any) -> None:
        self.noted.append(("acknowledged", message.stored_end))

    def acknowledge_at_once(self, ack: Ack) -> bool:
        assert ack.stored_end <= self.replica.store.appended_end
        self.noted.append(("acknowledged at once", ack.stored_end))
        return True

    def copy(self) -> LogCopy:
        store, config = self.replica.store, self.replica.config

        def log_state() -> LogState:
            raise AssertionError("it has joined")

        async def adopt(_: EpochHistory) -> None:
            raise AssertionError("it has joined")

        return LogCopy(
            cast(Any, self),
            SENDER,
            "the master",
            store,
            SlaveSide(
                log_state=log_state,
                adopt_history=adopt,
                on_appended=self.replica.flush.appended,
                on_confirmed=lambda end: self.noted.append(("confirmed", end)),
            ),
            cast(Any, None),
            StreamLimits(flush_is_sync=config.flush_mode is FlushMode.SYNC),
            SystemClock(),
        )


async def parts_of(root: Path, count: int) -> Sequence[LogPart]:
    """Each says that the ones before it are confirmed."""
    parts: list[LogPart] = []
    async with running_replica(root) as source:
        begin = 0
        for number in range(count):
            end = source.store.append(batch_of("t", b"%d" % number), queue_id=0).end
            data = source.store.log.read(((begin, end - begin),))
            parts.append(LogPart(begin, data, begin, end))
            begin = end
    return parts


@pytest.mark.parametrize("is_sync", [False, True])
async def test_an_acknowledgement_leaves_before_news_is_passed_on(
    tmp_path: Path, is_sync: bool
) -> None:
    parts = await parts_of(tmp_path / "m", 3)
    config = replace(STORE, flush_mode=FlushMode.SYNC) if is_sync else STORE
    async with running_replica(tmp_path / "s", config) as replica:
        master = Scripted(replica)
        running = asyncio.create_task(master.copy().run())
        await until(lambda: master.noted == [("acknowledged", 0)])
        for part in parts:
            master.noted.clear()
            master.said.put_nowait(part)
            await until(lambda: len(master.noted) >= 2)
            end = part.position + len(part.data)
            noted = [("acknowledged at once", end), ("confirmed", part.position)]
            if is_sync:
                noted = [("confirmed", part.position), ("acknowledged", end)]
                assert replica.store.flushed_end >= end
            assert master.noted == noted
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_parts_that_come_together_are_all_stored_in_order(tmp_path: Path) -> None:
    parts = await parts_of(tmp_path / "m", 50)
    async with running_replica(tmp_path / "s") as replica:
        master = Scripted(replica)
        for part in parts:
            master.said.put_nowait(part)
        running = asyncio.create_task(master.copy().run())
        await until(lambda: ("confirmed", parts[-1].position) in master.noted)
        assert replica.store.appended_end == parts[-1].log_end
        await until(lambda: master.noted[-1][1] >= parts[-1].position)
        ends = [end for what, end in master.noted if what != "confirmed"]
        assert ends == sorted(ends)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
