"""Attempts are counted over the death of a consumer's process."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import (
    ConsumerConfig,
    Exhausted,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    StartFrom,
)
from aerobee.consumer_client.attempts import (
    FAILED_MAX,
    QUEUES_MAX,
    SIZE,
    WORKERS_MAX,
    Attempts,
    Counted,
    counted_in,
)
from aerobee.consumer_client.attempts_file import AttemptsFile
from aerobee.runtime.clock import SystemClock
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

QUEUE = MessageQueue("orders", "broker-a", 3)
PROGRAM = Path(__file__).with_name("crashing_consumer.py")


async def run(cluster: RealCluster, folder: Path, batch_max: int = 1) -> tuple[int, list[str]]:
    """A life of the consumer: its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        cluster.address,
        str(folder),
        str(batch_max),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(40):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, said.decode().splitlines()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("kill", -9), ("sys.exit", 3)])
async def test_a_message_that_ends_its_process_is_given_up_after_as_many_attempts_as_any_other(
    cluster: RealCluster, tmp_path: Path, how: str, code: int
) -> None:
    await cluster.send("single", 0, [b"good", how.encode(), b"last"])
    first = await run(cluster, tmp_path)
    assert first == (code, ["good 0", f"{how} 0"])
    second = await run(cluster, tmp_path)
    # What was finished and not committed comes again, and nobody died of it; sys.exit commits.
    again = [] if how == "sys.exit" else ["good 0"]
    assert second == (code, [*again, f"{how} 1"])
    third = await run(cluster, tmp_path)
    assert third == (0, [*again, f"skipped {how} 2", "last 0"])
    left = [path for path in (tmp_path / "attempts").rglob("*") if path.is_file()]
    assert left == [], "nothing is left to be told"


@pytest.mark.slow
async def test_of_a_batch_that_died_the_messages_come_alone_so_that_one_is_given_up(
    cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"good", b"exit", b"last"])
    assert await run(cluster, tmp_path, 3) == (3, ["good 0", "exit 0", "last 0"])
    # Nobody knows yet which one it was.
    assert await run(cluster, tmp_path, 3) == (3, ["good 0", "exit 0"])
    assert await run(cluster, tmp_path, 3) == (3, ["good 0", "exit 1"])
    code, said = await run(cluster, tmp_path, 3)
    assert code == 0
    assert said[-2:] == ["skipped exit 2", "last 0"]


async def test_each_redelivery_says_how_many_came_before(
    cluster: RealCluster, tmp_path: Path, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, [b"x"])
    seen: list[int] = []

    def consumer() -> PushConsumer:
        def handle(messages: Sequence[ReceivedMessage]) -> None:
            seen.append(messages[0].reconsume_times)
            raise ValueError("never")

        return PushConsumer(
            "g",
            handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            retry=RetryPolicy(delays_ms=(10, 10, 60_000)),
            offsets_folder=tmp_path,
            config=quick,
        ).subscribe("single")

    async with consumer():
        await until(lambda: len(seen) == 3)
    assert seen == [0, 1, 2]
    # A restart in order goes on counting, too.
    async with consumer():
        await until(lambda: len(seen) == 4)
    assert seen == [0, 1, 2, 3]


async def test_without_a_folder_it_counts_in_memory_and_says_so(
    cluster: RealCluster,
    tmp_path: Path,
    quick: ConsumerConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("no folder")
    await cluster.send("single", 0, [b"x"])
    skipped: list[int] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        raise ValueError("never")

    def give_up(messages: Sequence[ReceivedMessage], failures: int) -> Exhausted:
        skipped.append(failures)
        return Exhausted.SKIP

    consumer = PushConsumer(
        "g",
        handle,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        retry=RetryPolicy(attempts_max=2, delays_ms=(10,)),
        on_exhausted=give_up,
        offsets_folder=tmp_path / "file",
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: skipped == [2])
    assert "attempts are counted in memory only" in caplog.text


# ---------------------------------------------------------------------------------- the tables


def test_what_is_in_hand_and_what_failed_is_read_back() -> None:
    buffer = bytearray(SIZE)
    attempts = Attempts(buffer)
    mark = attempts.mark(QUEUE)
    attempts.on_received(mark, 1_000, 2_000)
    attempts.on_failed(mark, 7, 7, 3)
    attempts.on_failed(mark, 9, 9, 1)
    attempts.on_finished(QUEUE, mark, [9])
    attempts.cells[attempts.worker_cell(1)] = mark + 7
    (found,) = counted_in(bytes(buffer))
    assert (found.offset, found.attempts, found.is_suspect) == (7, 4, True)
    assert found.queue == QUEUE
    assert found.is_of(1_000)
    assert found.is_of(2_000)
    assert not found.is_of(2_001), "another cluster's message at the same place"


def test_of_several_in_hand_nothing_is_counted_and_all_are_suspects_until_they_are_done() -> None:
    buffer = bytearray(SIZE)
    attempts = Attempts(buffer)
    mark = attempts.mark(QUEUE)
    attempts.on_received(mark, 1_000, 2_000)
    attempts.on_failed(mark, 7, 7, 3)
    attempts.on_failed(mark, 8, 8, 1)
    cell = attempts.worker_cell(0)
    attempts.cells[cell + 1], attempts.cells[cell] = 1, mark + 10
    attempts.cells[attempts.worker_cell(1)] = mark + 7
    found = counted_in(bytes(buffer))
    assert {each.offset: (each.attempts, each.is_suspect) for each in found} == {
        7: (3, True),
        8: (1, False),
        10: (0, True),
        11: (0, True),
    }
    # What the heir dies of has an attempt; the others wait for their turn.
    buffer = bytearray(SIZE)
    heir = Attempts(buffer)
    heir.inherit(found)
    heir.on_finished(QUEUE, heir.mark(QUEUE), [7])
    heir.cells[heir.worker_cell(0)] = heir.mark(QUEUE) + 10
    found = counted_in(bytes(buffer))
    assert {each.offset: (each.attempts, each.is_suspect) for each in found} == {
        8: (1, False),
        10: (1, True),
        11: (0, True),
    }


def test_one_of_more_workers_than_the_table_has_is_not_alone() -> None:
    buffer = bytearray(SIZE)
    attempts = Attempts(buffer)
    mark = attempts.mark(QUEUE)
    attempts.cells[attempts.worker_cell(0)] = mark + 3
    attempts.cells[attempts.worker_cell(WORKERS_MAX + 1)] = mark + 4
    assert [(each.offset, each.attempts) for each in counted_in(bytes(buffer))] == [(3, 0)]


def test_the_tables_are_bounded_and_forget_the_oldest() -> None:
    buffer = bytearray(SIZE)
    attempts = Attempts(buffer)
    mark = attempts.mark(QUEUE)
    for offset in range(FAILED_MAX + 5):
        attempts.on_failed(mark, offset, offset, 1)
    found = {each.offset for each in counted_in(bytes(buffer))}
    assert found == set(range(5, FAILED_MAX + 5))
    for number in range(QUEUES_MAX + 5):
        attempts.mark(MessageQueue("other", "broker-a", number))
    assert attempts.mark(MessageQueue("other", "broker-a", QUEUES_MAX + 5)) == 0
    attempts.cells[attempts.worker_cell(WORKERS_MAX + 1)] = mark + 1
    assert {each.offset for each in counted_in(bytes(buffer))} == found


@pytest.mark.parametrize("length", [0, 8, SIZE - 8, SIZE])
def test_bytes_that_are_no_table_say_nothing(length: int) -> None:
    assert counted_in(bytes(range(256)) * (length // 256) + bytes(length % 256)) == []


def test_what_lies_below_the_beginning_of_a_queue_is_finished() -> None:
    attempts = Attempts()
    attempts.inherit([Counted(QUEUE, offset, 2, 0, 9) for offset in (3, 8)])
    assert set(attempts.past_of(QUEUE, 5)) == {8}


def test_two_consumers_of_one_machine_have_files_of_their_own_and_the_living_lose_nothing(
    tmp_path: Path,
) -> None:
    clock = SystemClock()
    one, two, heir = Attempts(), Attempts(), Attempts()
    first = AttemptsFile(tmp_path, one, group="g", clock=clock)
    second = AttemptsFile(tmp_path, two, group="g", clock=clock)
    first.open()
    second.open()
    one.on_failed(one.mark(QUEUE), 1, 1, 1)
    two.on_failed(two.mark(QUEUE), 2, 2, 2)
    first.close()
    third = AttemptsFile(tmp_path, heir, group="g", clock=clock)
    third.open()
    assert {each.attempts for each in heir.past_of(QUEUE, 0).values()} == {1}, (
        "of the one that is gone"
    )
    second.close()
    third.take_over()
    third.close()


def test_a_file_has_all_its_blocks_before_anything_is_written_into_the_mapping(
    tmp_path: Path,
) -> None:
    """A store into a hole ends the process if the disk is full."""
    file = AttemptsFile(tmp_path, Attempts(), group="g", clock=SystemClock())
    file.open()
    assert (tmp_path / "0").stat().st_blocks * 512 >= SIZE
    file.close()


def test_without_room_on_the_disk_it_counts_in_memory_and_leaves_the_file_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    attempts = Attempts()
    file = AttemptsFile(tmp_path, attempts, group="g", clock=SystemClock())
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        file.open()
    assert "attempts are counted in memory only" in caplog.text
    attempts.on_failed(attempts.mark(QUEUE), 1, 1, 1)
    other = AttemptsFile(tmp_path, Attempts(), group="g", clock=SystemClock())
    other.open()
    assert [path.name for path in tmp_path.iterdir()] == ["0"], "nobody holds it"
    file.close()
    other.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_attempts_of_a_process_that_died_are_taken_over_while_its_child_lives(
    tmp_path: Path,
) -> None:
    """As the workers of a process pool do, which nobody ends."""
    clock = SystemClock()
    until_the_end, end = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            attempts = Attempts()
            file = AttemptsFile(tmp_path, attempts, group="g", clock=clock)
            file.open()
            attempts.on_failed(attempts.mark(QUEUE), 1, 1, 3)
            if os.fork() == 0:
                os.close(end)
                os.read(until_the_end, 1)
        finally:
            os._exit(0)
    os.waitpid(parent, 0)
    heir = Attempts()
    file = AttemptsFile(tmp_path, heir, group="g", clock=clock)
    file.open()
    os.close(end)
    os.close(until_the_end)
    assert {each.attempts for each in heir.past_of(QUEUE, 0).values()} == {3}
    file.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_counts_and_closes_changes_nothing_of_its_parents_file(tmp_path: Path) -> None:
    clock = SystemClock()
    attempts = Attempts()
    file = AttemptsFile(tmp_path, attempts, group="g", clock=clock)
    file.open()
    mark = attempts.mark(QUEUE)
    attempts.on_failed(mark, 1, 1, 3)
    child = os.fork()
    if child == 0:
        try:
            attempts.on_finished(QUEUE, mark, [1])
            file.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert {each.offset for each in counted_in((tmp_path / "0").read_bytes())} == {1}
    heir = Attempts()
    other = AttemptsFile(tmp_path, heir, group="g", clock=clock)
    other.open()
    assert heir.past_of(QUEUE, 0) == {}, "its owner lives"
    other.close()
    file.close()
