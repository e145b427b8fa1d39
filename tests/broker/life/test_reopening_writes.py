"""A folder is opened again only when nothing of its former run is written any more."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.groups.run_record import LEASES_PATH, RunRecord
from aerobee.broker.opened import Opened
from aerobee.broker.opening import open_replicated
from aerobee.store.engine.disk import RealDisk
from aerobee.v1 import broker_pb2
from tests.broker.conftest import StartBroker
from tests.support.demotion import Demotable
from tests.support.waiting import until

LONGER_THAN_AN_OPENING_S = 1.0


class SlowDisk(RealDisk):
    """Its renames of the record of leases wait while it is told to be slow."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may_rename = threading.Event()
        self.may_rename.set()
        self.waits = threading.Event()

    def rename(self, old: str, new: str) -> None:
        if LEASES_PATH in new and not self.may_rename.is_set():
            self.waits.set()
            assert self.may_rename.wait(30)
        super().rename(old, new)


async def test_a_demotion_waits_for_what_a_cancelled_call_still_writes(
    tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    openings: list[bool] = []
    """Whether the disk was fast at each."""

    def opened(*arguments: Any) -> Opened:
        openings.append(disk.may_rename.is_set())
        return open_replicated(*arguments)

    monkeypatch.setattr("aerobee.broker.app.open_replicated", opened)
    disk = SlowDisk(tmp_path / "store")
    broker = await start_broker(disk=disk, features=(Demotable,))
    try:
        disk.may_rename.clear()
        join = broker_pb2.Join(group="g", client_id="c", instance="1", session_timeout_ms=60_000)
        call = broker.groups.Membership()
        await call.write(broker_pb2.MemberEvent(join=join))
        await until(disk.waits.is_set, "the record of leases to be written")
        broker.feature(Demotable).demote()
        await asyncio.sleep(LONGER_THAN_AN_OPENING_S)
        assert openings == [True]
    finally:
        disk.may_rename.set()
    await until(lambda: len(openings) == 2, "the folder to be opened again")
    await broker.stop()
    record = RunRecord.decode((tmp_path / "store" / LEASES_PATH).read_bytes())
    assert record.run_number > 1
