"""The journal serves any state: a notebook over a topic of its own is written, followed, imaged and
taken over like the groups' offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aerobee.runtime.errors import NotMaster, ReplicaBehind
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import cut_below, nothing
from tests.support.notebook import NotedReplica, StoredReplica
from tests.support.stores import crashed_copy
from tests.support.waiting import until

WRITER = """
import asyncio, sys
from pathlib import Path
from tests.support.notebook import StoredReplica

async def main():
    replica = StoredReplica(Path(sys.argv[1]))
    running = asyncio.create_task(replica.journal.run())
    replica.lead(1)
    await replica.journal.begun(5)
    number = 0
    while True:
        await asyncio.gather(*(replica.write(f"page {number + n}", "x" * n) for n in range(20)))
        number += 20
        print(number, flush=True)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def running(*replicas: NotedReplica) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(replica.journal.run()) for replica in replicas]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def leading(replica: NotedReplica, epoch: int) -> None:
    replica.take_role(epoch)
    await until(lambda: replica.journal.is_ready)


async def test_a_slave_follows_what_a_master_writes_and_takes_over_once_it_knows_everything() -> (
    None
):
    log = MemoryLog()
    master = NotedReplica(log)
    async with running(master):
        await leading(master, 1)
        await master.write("a", "first")
        slave_log = log.copy()
        await master.write("a", "second")
    slave = NotedReplica(slave_log)
    async with running(slave):
        with pytest.raises(NotMaster, match="only the master answers for the notes"):
            slave.journal.writer()
        slave.take_role(2)
        await asyncio.sleep(0.01)
        with pytest.raises(ReplicaBehind, match="reading the notes"):
            slave.journal.writer()
        slave_log.confirm()
        await until(lambda: slave.journal.is_ready)
        assert slave.notebook.pages == {"a": "first"}, "the second was never confirmed"
        slave_log.is_sync = True
        await slave.write("a", "another second")
        assert slave.notebook.pages == {"a": "another second"}
        assert slave.writers.terms == [(2, False)]
        slave.take_role(None)
        assert slave.writers.ends == 1


async def test_who_begins_after_an_image_knows_what_the_log_has_lost() -> None:
    log = MemoryLog()
    master = NotedReplica(log)
    async with running(master):
        await leading(master, 1)
        for number in range(600):
            master.journal.writer().write(f"page {number % 300}", str(number))
        await master.write("torn", "x")
        old = master.notebook.snapshot()
        await master.write("torn", None)
        removed = log.records_end
        assert await master.journal.prepare_removal(log.end, nothing) == ""
        await master.write("late", "y")
    for snapshot in ("", old):
        late_log = cut_below(log, removed)
        late_log.confirm()
        late = NotedReplica(late_log, snapshot)
        async with running(late):
            await until(lambda: late.notebook.next_offset == log.records_end)  # noqa: B023
            late.journal.check_known()
            assert late.notebook.pages == master.notebook.pages
    cut_log = cut_below(log, removed + 1)
    cut_log.confirm()
    cut = NotedReplica(cut_log)
    async with running(cut):
        await until(lambda: cut.notebook.next_offset == log.records_end)
        with pytest.raises(ReplicaBehind, match="all of the notes"):
            cut.journal.check_known()


async def test_whoever_comes_after_a_killed_master_has_every_note_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    root = tmp_path / "master"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(root), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged = 0
    async with asyncio.timeout(30):
        while acknowledged < 400:
            acknowledged = int(await process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    while line := await process.stdout.readline():
        acknowledged = int(line)
    await process.wait()
    slave = StoredReplica(crashed_copy(root, tmp_path / "slave"))
    async with running(slave):
        # Its master's last word on what is confirmed, in two steps.
        for end in (slave.store.appended_end // 2, slave.store.appended_end):
            slave.durability.on_confirmed(end)
        await until(lambda: slave.notebook.next_offset == slave.record_count)
        check_pages(slave, acknowledged)
        slave.lead(2)
        await until(lambda: slave.journal.is_ready)
        await slave.write("page 0", "of the next master")
    again = StoredReplica(root)
    async with running(again):
        again.lead(2)
        await until(lambda: again.journal.is_ready)
        check_pages(again, acknowledged)


async def test_nothing_waits_for_a_clock(tmp_path: Path) -> None:
    """A slave applies and a master begins within turns of the loop."""
    replica = StoredReplica(tmp_path)
    async with running(replica):
        await turns()
        replica.lead(1)
        await turns()
        assert replica.journal.is_ready
        replica.take_role(None)
        assert not replica.journal.is_ready
    slave_log = MemoryLog()
    slave = NotedReplica(slave_log)
    async with running(slave):
        await turns()
        slave_log.append(b'[{"kind":"note","name":"a","text":"x"}]')
        await turns()
        assert slave.notebook.pages == {"a": "x"}
        slave.take_role(2)
        await turns()
        assert slave.journal.is_ready


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def check_pages(replica: NotedReplica, count: int) -> None:
    pages = replica.notebook.pages
    assert [pages.get(f"page {number}") for number in range(count)] == [
        "x" * (number % 20) for number in range(count)
    ]
