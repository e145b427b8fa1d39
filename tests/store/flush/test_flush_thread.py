"""The flush threads over a real store: group commit, upkeep, failure, and the way out."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import Busy, NotWritable, ShuttingDown, StoreFailed
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import StoreState
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.policy import FlushPolicy
from tests.support.fault_disk import FaultDisk, broken, no_space
from tests.support.stores import SMALL, append, batch_of, check_agreement, open_store, read_queue
from tests.support.waiting import until

SYNC = replace(SMALL, flush_mode=FlushMode.SYNC, flush_interval_ms=20, checkpoint_interval_ms=20)
ASYNC = replace(SYNC, flush_mode=FlushMode.ASYNC)


class Flushing:
    """A store with its flush threads, and the flushed ends that came back."""

    def __init__(self, root: Path, config: StoreConfig) -> None:
        self.disk = FaultDisk(root)
        self.config = config
        self.store: MessageStore = open_store(self.disk, config, SystemClock())
        self.ends: list[int] = []
        self.thread = FlushThread(self.store, self.disk, SystemClock(), config)
        self.thread.on_flushed(self._flushed)
        self.on_flushed: Callable[..., None] | None = None

    def _flushed(self, *_: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.ends.append(self.store.flushed_end)
        if self.on_flushed is not None:
            self.on_flushed()

    async def until_flushed(self) -> None:
        await until(lambda: self.store.flushed_end == self.store.appended_end)


@asynccontextmanager
async def running(root: Path, config: StoreConfig) -> AsyncIterator[Flushing]:
    flushing = Flushing(root, config)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(flushing.thread.run(), name="flush")
        await asyncio.sleep(0)
        try:
            yield flushing
        finally:
            task.cancel()


async def test_sync_mode_flushes_every_append_and_several_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, SYNC) as flushing:
        for number in range(20):
            append(flushing.store, "Orders", 0, b"%d" % number)
            flushing.thread.appended()
        await flushing.until_flushed()
        assert flushing.ends[-1] == flushing.store.appended_end
        # The first flush took one message; the others came while it ran and shared the next.
        assert len([end for end in flushing.ends if end]) <= 4
    flushing.store.close()
    assert flushing.store.state is StoreState.CLOSING


async def test_async_mode_flushes_by_time(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        append(flushing.store, "Orders", 0, b"a")
        flushing.thread.appended()
        assert flushing.store.flushed_end == 0
        await flushing.until_flushed()


async def test_async_mode_flushes_early_when_much_is_unflushed(tmp_path: Path) -> None:
    config = replace(ASYNC, flush_interval_ms=60_000, flush_unflushed_bytes=1_000)
    async with running(tmp_path, config) as flushing:
        append(flushing.store, "Orders", 0, b"x" * 500)
        flushing.thread.appended()
        await asyncio.sleep(0.05)
        assert flushing.store.flushed_end == 0
        append(flushing.store, "Orders", 0, b"x" * 500)
        flushing.thread.appended()
        await flushing.until_flushed()


async def test_the_upkeep_writes_queues_checkpoints_and_the_next_segment(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        store = flushing.store
        append(store, "Orders", 0, b"x" * 2_500)
        flushing.thread.appended()
        await until(lambda: store.statistics().queue_tail_bytes == 0)
        assert (tmp_path / "consumequeue/Orders/0" / ("0" * 20)).stat().st_size == 200
        await until(lambda: (tmp_path / "preallocated-2").exists())
        await until(lambda: store.supply.take_prepare() is None)
        appended = append(store, "Orders", 0, b"y" * 2_500)
        assert appended.base_physical_offset == 4_096
        await flushing.until_flushed()
    store.close()
    assert not (tmp_path / "abort").exists()


async def test_a_log_that_has_stopped_growing_is_left_alone_only_after_its_checkpoint(
    tmp_path: Path,
) -> None:
    config = replace(ASYNC, checkpoint_interval_ms=500)
    async with running(tmp_path, config) as flushing:
        store = flushing.store
        append(store, "Orders", 0, b"x")
        flushing.thread.appended()
        await flushing.until_flushed()
        assert not store.ledger.is_settled
        flushed_s = time.monotonic()
        await until(lambda: store.ledger.is_settled)
        assert time.monotonic() - flushed_s < 2, "it came with the look at an idle store"
    store.close()


async def test_a_store_that_is_busy_is_flushed_although_no_flush_is_due(tmp_path: Path) -> None:
    """Nothing else would ever let it take messages again."""
    config = replace(
        ASYNC,
        flush_interval_ms=3_600_000,
        checkpoint_interval_ms=3_600_000,
        queue_tail_bytes_max=60,
    )
    async with running(tmp_path, config) as flushing:
        store = flushing.store
        await until(lambda: store.flushed_end == store.appended_end)
        for _ in range(13):
            append(store, "Orders", 0, b"x")
            flushing.thread.appended()
        with pytest.raises(Busy, match="consume queue entries wait in memory"):
            append(store, "Orders", 0, b"x")

        def is_taken_again() -> bool:
            with contextlib.suppress(Busy):
                append(store, "Orders", 0, b"taken again")
                return True
            return False

        await until(is_taken_again)
    store.close()


async def test_a_failed_fsync_ends_the_run_and_fails_the_store(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(StoreFailed, match="Input/output error")):
        async with running(tmp_path, SYNC) as flushing:
            append(flushing.store, "Orders", 0, b"a")
            flushing.disk.datasync_error = (lambda path: path.startswith("commitlog"), broken())
            flushing.thread.appended()
            await until(lambda: flushing.store.state is StoreState.FAILED)
            flushing.disk.datasync_error = None
            flushing.thread.request()
            await asyncio.sleep(0.05)
    assert flushing.store.flushed_end == 0
    assert [end for end in flushing.ends if end] == []
    flushing.store.close()
    assert (tmp_path / "abort").exists()


async def test_a_store_that_failed_while_appending_ends_the_run(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(StoreFailed, match="Input/output error")):
        async with running(tmp_path, SYNC) as flushing:
            append(flushing.store, "Orders", 0, b"a")
            flushing.disk.write_error = (lambda path: path.startswith("commitlog"), broken())
            with pytest.raises(StoreFailed):
                append(flushing.store, "Orders", 0, b"b")
            flushing.thread.appended()  # does not raise: the sender has its answer
            await asyncio.sleep(10)


async def test_a_bug_behind_on_flushed_ends_the_run(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError)):
        async with running(tmp_path, SYNC) as flushing:

            def stumble(*_: int) -> None:
                raise ZeroDivisionError

            flushing.on_flushed = stumble
            append(flushing.store, "Orders", 0, b"a")
            flushing.thread.appended()
            await asyncio.sleep(10)


async def test_a_failed_queue_write_ends_the_run_too(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(StoreFailed)):
        async with running(tmp_path, SYNC) as flushing:
            flushing.disk.write_error = (lambda path: "queue" in path, broken())
            append(flushing.store, "Orders", 0, b"a")
            flushing.thread.appended()
            await asyncio.sleep(10)
    with pytest.raises(StoreFailed):
        append(flushing.store, "Orders", 0, b"b")


async def test_a_full_disk_is_waited_out(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        store = flushing.store
        flushing.disk.write_error = (lambda path: "queue" in path, no_space())
        append(store, "Orders", 0, b"a")
        await until(lambda: store.state is StoreState.DISK_FULL)
        with pytest.raises(NotWritable):
            append(store, "Orders", 0, b"b")
        flushing.disk.write_error = None
        await until(lambda: store.state is StoreState.WRITABLE)
        append(store, "Orders", 0, b"b")
    store.close()
    assert read_queue(open_store(tmp_path), "Orders", 0) == [b"a", b"b"]


@pytest.mark.thorough
async def test_the_disks_free_space_is_measured_about_every_second(tmp_path: Path) -> None:
    config = replace(ASYNC, disk_free_bytes_min=1_000)
    async with running(tmp_path, config) as flushing:
        append(flushing.store, "Orders", 0, b"a")
        flushing.disk.free, flushing.disk.total = 999, 2_000
        await until(lambda: flushing.store.state is StoreState.DISK_FULL)
        with pytest.raises(NotWritable, match="999 bytes free"):
            append(flushing.store, "Orders", 0, b"b")
        flushing.disk.free = 1_000
        await until(lambda: flushing.store.state is StoreState.WRITABLE)
    flushing.store.close()


async def test_on_the_way_out_both_threads_finish_what_they_have(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    async with running(tmp_path, SYNC) as flushing:
        for number in range(30):
            batch = batch_of("Orders", b"%d" % number * 100)
            flushing.store.append(batch, queue_id=number % 3)
            flushing.store.confirm(flushing.store.appended_end)
            flushing.thread.appended()
    left = {thread.name for thread in threading.enumerate() if thread not in others}
    assert not left & {"flush", "upkeep"}
    flushing.store.close()
    assert not (tmp_path / "abort").exists()
    reopened = open_store(tmp_path)
    assert reopened.recovery.clean
    check_agreement(reopened)


def never(*_: object, **__: object) -> bool:
    return False


async def test_nothing_that_follows_from_the_log_is_written_before_the_log_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure queues and checkpoint would speak of records that are lost."""
    monkeypatch.setattr(FlushPolicy, "due_by_time", never)  # no flush before this
    async with running(tmp_path, SYNC) as flushing:
        append(flushing.store, "Orders", 0, b"a")
        await until(lambda: flushing.store.ledger.checkpoint_due)
        flushing.disk.datasync_gate = threading.Event()
        flushing.disk.calls.clear()
        flushing.thread.appended()
        await until(lambda: any(kind == "datasync" for kind, _ in flushing.disk.calls))
        await asyncio.sleep(0.05)  # time enough for another thread's mistake
        before = [path for kind, path in flushing.disk.calls if kind == "write"]
        flushing.disk.datasync_gate.set()
        await until(lambda: ("write", "checkpoint") in flushing.disk.calls)
        assert all(path.startswith("commitlog/") for path in before), before
    flushing.store.close()


async def test_what_comes_during_a_flush_is_flushed_right_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlushPolicy, "due_by_time", never)  # time must not help
    async with running(tmp_path, SYNC) as flushing:
        release = threading.Event()
        real = flushing.disk.fsync_directory

        def wait_for_release(path: str) -> None:
            release.wait(5)
            real(path)

        flushing.disk.fsync_directory = wait_for_release  # type: ignore[method-assign]
        first = append(flushing.store, "Orders", 0, b"a")
        flushing.thread.appended()
        append(flushing.store, "Orders", 0, b"b")
        flushing.thread.appended()
        release.set()
        await flushing.until_flushed()
        assert flushing.ends[-2:] == [first.end, flushing.store.appended_end]
    flushing.store.close()


async def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    async with running(tmp_path, SYNC) as flushing:
        slow = threading.Event()
        real = flushing.disk.fsync_directory

        def fsync_slowly(path: str) -> None:
            slow.wait(5)
            real(path)

        flushing.disk.fsync_directory = fsync_slowly  # type: ignore[method-assign]
        append(flushing.store, "Orders", 0, b"a")
        flushing.thread.appended()
        for _ in range(20):
            append(flushing.store, "Orders", 0, b"b")
            flushing.thread.appended()
            await asyncio.sleep(0.001)
        assert flushing.store.flushed_end == 0
        slow.set()
        await flushing.until_flushed()
    flushing.store.close()


class Labour:
    """A work that takes as long as a test wants, and may fail."""

    def __init__(self, error: OSError | None = None) -> None:
        self.may_end = threading.Event()
        self.ran_on = ""
        self._error = error

    def run(self) -> None:
        assert self.may_end.wait(10)
        self.ran_on = threading.current_thread().name
        if self._error is not None:
            raise self._error


async def test_whoever_hands_over_a_work_hears_when_it_has_run(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        labour = Labour()
        waiting = asyncio.create_task(flushing.thread.upkeep(labour))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        labour.may_end.set()
        await waiting
        assert labour.ran_on == "upkeep"
    flushing.store.close()
    with pytest.raises(ShuttingDown):
        await flushing.thread.upkeep(labour)


async def test_a_cancelled_waiter_still_waits_for_what_it_handed_over(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        labour = Labour()
        waiting = asyncio.create_task(flushing.thread.upkeep(labour))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.sleep(0.02)
        assert not waiting.done()
        labour.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert labour.ran_on == "upkeep"
    flushing.store.close()


async def test_a_waiter_cancelled_again_and_again_still_waits(tmp_path: Path) -> None:
    async with running(tmp_path, ASYNC) as flushing:
        labour = Labour()
        waiting = asyncio.create_task(flushing.thread.upkeep(labour))
        for _ in range(3):
            await asyncio.sleep(0.02)
            waiting.cancel()
        await asyncio.sleep(0.02)
        assert not waiting.done()
        labour.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert labour.ran_on == "upkeep"
    flushing.store.close()


async def test_a_waiter_that_is_cancelled_while_the_disk_fails_hears_of_the_failure(
    tmp_path: Path,
) -> None:
    heard: list[object] = []

    async def fail() -> None:
        async with running(tmp_path, ASYNC) as flushing:
            labour = Labour(broken())
            waiting = asyncio.create_task(flushing.thread.upkeep(labour))
            waiting.add_done_callback(
                lambda done: heard.append("cancelled" if done.cancelled() else done.exception())
            )
            await asyncio.sleep(0.02)
            waiting.cancel()
            labour.may_end.set()
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup):
        await fail()
    assert [type(each) for each in heard] == [StoreFailed]


async def test_everybody_who_waits_hears_of_the_first_failure(tmp_path: Path) -> None:
    first, second = Labour(broken()), Labour()

    async def fail() -> None:
        async with running(tmp_path, ASYNC) as flushing:
            waiting = [
                asyncio.create_task(flushing.thread.upkeep(each)) for each in (first, second)
            ]
            await asyncio.sleep(0.02)
            first.may_end.set()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [StoreFailed, StoreFailed]
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as ended:
        await fail()
    assert second.ran_on == ""
    assert ended.group_contains(StoreFailed)


async def test_the_log_is_warm_ahead_of_the_appends_and_the_next_segment_is_in_time(
    tmp_path: Path,
) -> None:
    config = replace(
        ASYNC,
        segment_bytes=1 << 20,
        warm_up_segments=True,
        warm_up_ahead_bytes=1 << 20,
        unflushed_bytes_max=1 << 30,
    )
    async with running(tmp_path, config) as flushing:
        store = flushing.store
        for _ in range(64):
            append(store, "Orders", 0, bytes(100_000))
            flushing.thread.appended()
            await asyncio.sleep(0.005)  # 20 MB/s: a segment lasts 50 ms
        await until(lambda: store.supply.warm_end > store.appended_end)
        touched = {path for kind, path in flushing.disk.calls if kind == "touch"}
        assert len(touched) >= 5
        await flushing.until_flushed()
        assert read_queue(store, "Orders", 0) == [bytes(100_000)] * 64
    store.close()


async def test_a_refused_lock_is_told_once_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, replace(ASYNC, lock_segments_in_memory=True)) as flushing:
        flushing.disk.lock_error = OSError(12, "Cannot allocate memory")
        for number in range(20):
            append(flushing.store, "Orders", 0, b"%d" % number + bytes(1_000))
            flushing.thread.appended()
            await asyncio.sleep(0.001)
        await flushing.until_flushed()
    told = [record for record in caplog.records if "not locked in memory" in record.message]
    assert len(told) == 1
    assert told[0].levelname == "WARNING"
    assert "RLIMIT_MEMLOCK" in told[0].message
    assert len([call for call in flushing.disk.calls if call[0] == "lock"]) == 1
    flushing.store.close()
