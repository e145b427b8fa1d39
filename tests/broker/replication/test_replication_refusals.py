"""What breaks the replication protocol ends the stream with a named error, on either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from isal.isal_zlib import crc32

from aerobee.broker.edge.replicas.frames import FrameWriter
from aerobee.broker.edge.replicas.replication_client import connect_to_master
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import (
    COMPARED_BYTES_MAX,
    BeginAnew,
    Cut,
    GoOn,
    LogState,
    Sender,
    Start,
    compared_bytes,
)
from aerobee.broker.replication.master_term import ReplicaName
from aerobee.broker.replication.messages import Ack, Hello
from aerobee.runtime.errors import (
    AerobeeError,
    ForeignCluster,
    MessageNotFound,
    NotMaster,
    ReplicaDiverged,
    StaleEpoch,
)
from aerobee.store.engine.log import commit_log
from aerobee.v1 import replication_pb2
from tests.support.bare_slave import EMPTY, NAME, SENDER, Status, bare_slave, damaged, history
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.replicas import log_bytes
from tests.support.replication_streams import (
    CLUSTER,
    GROUP,
    KIB,
    MIB,
    STORE,
    Master,
    running_master,
    running_slave,
)
from tests.support.stores import batch_of
from tests.support.waiting import until


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    """A master of epoch 1 with a short log."""
    async with running_master(tmp_path / "master") as master:
        for _ in range(10):
            master.append(batch_of("t", b"x" * 1000))
        yield master


# ------------------------------------------------------------------------------------ hello


@pytest.mark.parametrize(
    ("sender", "ending"),
    [
        (Sender("other", GROUP, 1), ("FAILED_PRECONDITION", 120)),
        (Sender(CLUSTER, "broker-b", 1), ("FAILED_PRECONDITION", 120)),
        (Sender("other", GROUP, 9), ("FAILED_PRECONDITION", 120)),
        (Sender(CLUSTER, GROUP, 0), ("FAILED_PRECONDITION", 201)),
        (Sender(CLUSTER, GROUP, 2), ("FAILED_PRECONDITION", 201)),
    ],
)
async def test_a_slave_of_elsewhere_or_of_another_epoch_is_refused(
    master: Master, sender: Sender, ending: Status
) -> None:
    async with bare_slave(master, sender) as slave:
        await slave.hello()
        assert await slave.ending() == ending
    assert not master.roles.events
    # Only of this group's newer epochs does the master take notice.
    assert master.roles.heard == ([2] if sender.epoch == 2 else [])


async def test_a_broker_that_is_not_master_refuses_slaves(master: Master) -> None:
    master.roles.end_term()
    async with bare_slave(master) as slave:
        await slave.hello()
        assert await slave.ending() == ("FAILED_PRECONDITION", 200)


async def test_a_replica_that_did_not_register_is_refused(master: Master) -> None:
    async with bare_slave(master) as slave:
        await slave.hello(name=ReplicaName(7, "seven"))
        assert await slave.ending() == ("FAILED_PRECONDITION", 200)


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        # Another segment size: the logs cannot be equal.
        (replace(EMPTY, segment_bytes=MIB), ("FAILED_PRECONDITION", 121)),
        # Another cluster's data: messages that no master of this broker group wrote.
        (replace(EMPTY, end=500), ("FAILED_PRECONDITION", 121)),
        (replace(EMPTY, end=500, epochs=history((1, 7))), ("FAILED_PRECONDITION", 121)),
        # It knows more to be confirmed than the master has.
        (
            replace(EMPTY, end=9 * MIB, epochs=history((1, 0)), confirmed_end=8 * MIB),
            ("FAILED_PRECONDITION", 121),
        ),
        # Its log is of a newer master's.
        (replace(EMPTY, end=500, epochs=history((1, 0), (5, 400))), ("FAILED_PRECONDITION", 201)),
    ],
)
async def test_a_log_that_is_no_part_of_the_masters_is_refused(
    master: Master, state: LogState, ending: Status
) -> None:
    async with bare_slave(master) as slave:
        await slave.hello(state)
        assert await slave.ending() == ending
    assert not master.roles.events
    assert master.roles.heard == ([5] if ending[1] == 201 else [])


@pytest.mark.parametrize(
    "changes",
    [
        {"log_begin": 5, "log_end": 4},
        {"epochs": [replication_pb2.EpochStart(epoch=2), replication_pb2.EpochStart(epoch=1)]},
    ],
)
async def test_a_hello_that_contradicts_itself_is_refused(
    master: Master, changes: dict[str, Any]
) -> None:
    async with bare_slave(master) as slave:
        await slave.hello(**changes)
        assert await slave.ending() == ("INVALID_ARGUMENT", 100)


async def test_a_hello_without_window_or_incarnation_is_refused(master: Master) -> None:
    for window_bytes, incarnation in ((0, "i"), (5, "")):
        async with bare_slave(master) as slave:
            name = ReplicaName(1, incarnation)
            hello = Hello(EMPTY, name, "i", window_bytes=window_bytes, tables={})
            await slave.write(slave.frames.hello(hello))
            assert await slave.ending() == ("INVALID_ARGUMENT", 100)


async def test_a_stream_begins_with_a_hello(master: Master) -> None:
    async with bare_slave(master) as slave:
        await slave.write(slave.frames.ack(0, 0))
        assert await slave.ending() == ("INVALID_ARGUMENT", 100)


@pytest.mark.parametrize("frame", [b"", b"\xff\xff\xff", damaged(FrameWriter(SENDER).ack(5, 4))])
async def test_a_damaged_first_frame_is_refused(master: Master, frame: bytes) -> None:
    async with bare_slave(master) as slave:
        await slave.write(frame)
        assert await slave.ending() == ("DATA_LOSS", 123)


async def test_who_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m", heartbeat_interval_s=0.1) as master:
        async with bare_slave(master) as slave:
            code = await asyncio.wait_for(slave.call.code(), 5)
            assert code is grpc.StatusCode.UNAVAILABLE
        assert not master.roles.events


# ------------------------------------------------------------------------------------ receipts


@pytest.mark.parametrize(
    ("frame", "ending"),
    [
        (FrameWriter(SENDER).ack(100 * MIB, 0), ("ABORTED", 122)),
        (FrameWriter(SENDER).ack(-1, -1), ("ABORTED", 122)),
        (FrameWriter(Sender(CLUSTER, GROUP, 0)).ack(0, 0), ("FAILED_PRECONDITION", 201)),
        (FrameWriter(Sender(CLUSTER, GROUP, 2)).ack(0, 0), ("FAILED_PRECONDITION", 201)),
        (FrameWriter(Sender("other", GROUP, 1)).ack(0, 0), ("FAILED_PRECONDITION", 120)),
        (damaged(FrameWriter(SENDER).ack(1, 1)), ("DATA_LOSS", 123)),
        (b"\x00", ("DATA_LOSS", 123)),
        (
            FrameWriter(SENDER).hello(Hello(EMPTY, NAME, "i", window_bytes=1, tables={})),
            ("INVALID_ARGUMENT", 100),
        ),
    ],
)
async def test_a_receipt_that_cannot_be_ends_the_stream(
    master: Master, frame: bytes, ending: Status
) -> None:
    async with bare_slave(master) as slave:
        await slave.hello()
        assert (await slave.event()).agreement.start == 0
        await slave.bytes()
        await slave.write(slave.frames.ack(0, 0))
        await slave.write(frame)
        assert await slave.ending() == ending
    await until(lambda: not master.sender.connected)
    assert master.roles.events == [("joined", NAME), ("left", NAME)]


@pytest.mark.parametrize("frame", [None, FrameWriter(SENDER).ack(100 * MIB, 0)])
async def test_a_slave_does_not_count_before_its_first_receipt(
    master: Master, frame: bytes | None
) -> None:
    """It may have found that its log is another one with the same epochs."""
    async with bare_slave(master) as slave:
        await slave.hello()
        await slave.bytes()
        assert master.sender.connected == [NAME.broker_id]
        if frame is not None:
            await slave.write(frame)
            await slave.ending()
    await until(lambda: not master.sender.connected)
    assert not master.roles.events


async def test_a_receipt_that_goes_back_ends_the_stream(master: Master) -> None:
    async with bare_slave(master) as slave:
        await slave.hello()
        part = await slave.bytes()
        assert (part.position, part.log_end) == (0, master.store.appended_end)
        assert part.data == log_bytes(master.store)
        await slave.write(slave.frames.ack(500, 0))
        await slave.write(slave.frames.ack(499, 0))
        assert await slave.ending() == ("ABORTED", 122)


async def test_a_silent_slave_is_given_up(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m", heartbeat_interval_s=0.2) as master:
        async with bare_slave(master) as slave:
            await slave.hello()
            await slave.write(slave.frames.ack(0, 0))
            heartbeats = 0
            while not master.roles.events[1:]:
                try:
                    event = await slave.event()
                except (grpc.aio.AioRpcError, AssertionError):
                    break
                heartbeats += event.WhichOneof("event") == "heartbeat"
            assert heartbeats >= 4  # the master itself spoke all the time
            assert (await slave.call.code()) is grpc.StatusCode.UNAVAILABLE
        assert master.roles.events == [("joined", NAME), ("left", NAME)]


async def test_the_end_of_the_stream_by_the_slave_is_no_error(master: Master) -> None:
    async with bare_slave(master) as slave:
        await slave.hello()
        await slave.bytes()
        await slave.write(slave.frames.ack(0, 0))
        await slave.call.done_writing()
        assert (await asyncio.wait_for(slave.call.code(), 5)) is grpc.StatusCode.OK
    assert master.roles.events == [("joined", NAME), ("left", NAME)]


@replaces_what_is_compiled(commit_log)
async def test_bytes_that_retention_took_meanwhile_end_the_stream(master: Master) -> None:
    def removed(position: int) -> int:
        raise MessageNotFound("gone")

    master.store.log.contiguous_end = removed  # type: ignore[method-assign]
    async with bare_slave(master) as slave:
        await slave.hello()
        await slave.event()
        assert await slave.ending() == ("ABORTED", 122)


async def test_a_receipt_after_the_term_counts_for_nothing(master: Master) -> None:
    async with bare_slave(master) as slave:
        await slave.hello()
        await slave.bytes()
        counted: list[int] = []
        master.roles.replica_acknowledged = (  # type: ignore[method-assign]
            lambda name, end: counted.append(end)
        )
        # Another term of the same broker: the stream is of the first one.
        master.roles.term = None
        await slave.write(slave.frames.ack(500, 0))
        assert await slave.ending() == ("FAILED_PRECONDITION", 200)
        assert not counted


# ------------------------------------------------------------------------ same epochs, other bytes


def commit_logs(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


@pytest.mark.parametrize("batches", [3, 10, 100, 103])
async def test_another_clusters_folder_of_the_same_names_and_epochs_is_refused_untouched(
    tmp_path: Path, batches: int
) -> None:
    """Were its epochs all that counts, 3 and 10 batches would be taken for the beginning of the
    master's log, and of more the rest would be cut."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        for _ in range(10):
            master.append(batch_of("t", b"x" * 1000))
        for _ in range(batches):
            slave.store.append(batch_of("t", b"y" * 1000), queue_id=0)
        slave.history = history((1, 0))
        before = commit_logs(tmp_path / "s")
        with pytest.raises(ReplicaDiverged, match="another cluster's"):
            await asyncio.wait_for(slave.follow(master.address), 5)
        assert "move it away" in slave.follower.trouble
        assert commit_logs(tmp_path / "s") == before
        assert not slave.adopted
        await until(lambda: not master.sender.connected)
        assert not master.roles.events


async def test_a_log_that_was_used_elsewhere_is_refused_although_it_began_as_the_masters(
    tmp_path: Path,
) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        master.append(batch_of("t", b"both"))
        slave.follow(master.address)
        await until(lambda: slave.store.appended_end == master.store.appended_end)
        await slave.stop()
        master.append(batch_of("t", b"here"))
        slave.store.append(batch_of("t", b"elsewhere"), queue_id=0)
        before = log_bytes(slave.store)
        with pytest.raises(ReplicaDiverged, match="other bytes"):
            await slave.follow(master.address)
        assert log_bytes(slave.store) == before


@pytest.mark.parametrize("extra_batches", [0, 2])
async def test_a_slave_whose_bytes_are_the_masters_goes_on_or_cuts(
    tmp_path: Path, extra_batches: int
) -> None:
    """However far back its log agrees, no more is read than the protocol says."""
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        for _ in range(100):
            master.append(batch_of("t", b"x" * 1000))
        end = master.store.appended_end
        assert end > COMPARED_BYTES_MAX
        slave.follow(master.address)
        await until(lambda: slave.store.appended_end == end)
        await slave.stop()
        for _ in range(extra_batches):
            slave.store.append(batch_of("t", b"of no other replica"), queue_id=0)
        following = slave.follow(master.address)
        if extra_batches:
            assert await following == Cut(end)
        else:
            await until(lambda: slave.follower.is_connected)
        async with bare_slave(master) as bare:
            name = ReplicaName(2, "two")
            await bare.hello(replace(EMPTY, end=end, epochs=history((1, 0))), name)
            agreement = (await bare.event()).agreement
            tail = log_bytes(master.store, end - COMPARED_BYTES_MAX)
            assert agreement.start == end
            assert (agreement.tail_bytes, agreement.tail_checksum) == (len(tail), crc32(tail))


async def test_what_stands_behind_a_blank_record_is_not_compared(tmp_path: Path) -> None:
    """It is no part of the log: a slave does not store it."""
    config = replace(STORE, segment_bytes=64 * KIB)
    async with (
        running_master(tmp_path / "m", config) as master,
        running_slave(tmp_path / "s", config) as slave,
    ):
        while master.store.appended_end < 64 * KIB:
            filled = master.append(batch_of("t", b"x" * 3000))
        slave.follow(master.address)
        await until(lambda: slave.store.appended_end == filled)
        await slave.stop()
        segment = tmp_path / "m" / "commitlog" / f"{0:020}"
        assert not segment.read_bytes()[-100:].strip(b"\0")
        with segment.open("r+b") as file:
            file.seek(-100, 2)
            file.write(b"z" * 100)
        slave.follow(master.address)
        await until(lambda: slave.follower.is_connected)


@pytest.mark.parametrize(
    ("slave", "master", "start", "size"),
    [
        ((0, 500), (0, 900), GoOn(500), 500),
        ((0, 900), (0, 500), Cut(500), 500),
        ((200, 500), (0, 900), GoOn(500), 300),
        ((0, 500), (300, 900), GoOn(500), 200),
        ((0, 500), (500, 900), GoOn(500), 0),
        ((0, 0), (0, 900), GoOn(0), 0),
        ((0, 900), (500, 700), BeginAnew(500), 0),
        ((0, MIB), (0, MIB), GoOn(MIB - 1), COMPARED_BYTES_MAX),
        ((0, 9 * MIB), (0, 9 * MIB), GoOn(STORE.segment_bytes + 70), 70),
    ],
)
def test_what_both_logs_have_before_the_start_is_compared(
    slave: tuple[int, int], master: tuple[int, int], start: Start, size: int
) -> None:
    theirs = replace(EMPTY, begin=slave[0], end=slave[1])
    own = replace(EMPTY, begin=master[0], end=master[1])
    assert compared_bytes(theirs, own, start) == size


async def test_nothing_is_stored_before_the_history_is_durable(tmp_path: Path) -> None:
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        master.append(batch_of("t", b"x"))
        gate = asyncio.Event()

        async def adopt(adopted: EpochHistory) -> None:
            await gate.wait()
            slave.history = adopted

        slave.adopt = adopt  # type: ignore[method-assign, assignment]
        slave.follow(master.address)
        await asyncio.sleep(0.1)
        assert slave.store.appended_end == 0
        gate.set()
        await until(lambda: slave.store.appended_end == master.store.appended_end)


async def test_a_masters_refusal_reaches_the_slave_as_the_same_error(master: Master) -> None:
    """Also when it comes while the slave is about to write."""
    for error in (ReplicaDiverged("a"), StaleEpoch("b"), NotMaster("c"), ForeignCluster("d")):

        def refuse(*_: object, error: AerobeeError = error) -> None:
            raise error

        master.roles.check_joining = refuse  # type: ignore[method-assign, assignment]
        async with connect_to_master(master.address) as stream:
            hello = Hello(EMPTY, NAME, "i", window_bytes=MIB, tables={})
            await stream.write(SENDER, hello)
            with pytest.raises(type(error), match=str(error)):
                await stream.read()
            with pytest.raises(type(error), match=str(error)):
                await stream.write(SENDER, Ack(0, 0))
