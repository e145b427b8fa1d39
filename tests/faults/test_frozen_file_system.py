"""A file system that blocks whoever writes to it, as a real kernel does it: FIFREEZE on ext4.

A broker appends on its event loop. So where a write blocks, and not only a sync, the whole broker
stands still: it cannot hand over, and need not, for its lease ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.etcd import running_etcd
from tests.support.loop_disk import LoopDisk
from tests.support.replica_group import replica_group

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path / "image", tmp_path / "mounted", 64 * MIB)
    yield disk
    disk.unmount()


@pytest.mark.thorough
@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_a_master_on_a_frozen_file_system_is_replaced_and_follows_once_it_thaws(
    tmp_path: Path, disk: LoopDisk, flush: str
) -> None:
    disk.store.mkdir()
    (tmp_path / "replica-0").symlink_to(disk.store)
    settings: dict[str, Any] = {"flush": flush, "disk_hung_after_ms": 1_500, "segment_bytes": MIB}
    with running_etcd(tmp_path) as etcd:
        async with replica_group(tmp_path, etcd.endpoint, (0, 1), **settings) as group:
            await group.in_sync(0, 1)
            await group.create_topic("orders")
            if await group.master() == 1:
                await group.hand_over(1, 0)
                await group.in_sync(0, 1)
            await group.send_until_stored("orders", b"before")
            disk.freeze()
            try:
                assert await group.send_until_stored("orders", b"during") == 1
            finally:
                disk.thaw()
            await group.in_sync(0, 1)
            await group.logs_equal(0, 1)
            stored = await group.pull_all(1, "orders")
            assert {b"before", b"during"} <= set(stored)
            for replica in group.replicas.values():
                await replica.stop()
