"""Pulling over real gRPC: streams of many queues, credits, long polls, ranges, filters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.rpc.own_protocol import code_of
from aerobee.store.engine.disk import DiskFile, RealDisk
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.grpcio_client import error_from_rpc

MakeBatch = Callable[..., broker_pb2.RecordBatch]
MIB = 1024 * 1024


class Puller:
    """One pull stream."""

    def __init__(self, broker: Any) -> None:
        self.call = broker.pull.PullStream()

    async def subscribe(
        self,
        handle: int,
        queue_id: int = 0,
        *,
        offset: int = 0,
        credit: int = MIB,
        topic: str = "t",
        expression: str = "",
        **request: Any,
    ) -> None:
        await self.call.write(
            broker_pb2.PullCommand(
                subscribe=broker_pb2.SubscribeQueue(
                    handle=handle,
                    request=broker_pb2.PullRequest(
                        topic=topic,
                        queue_id=queue_id,
                        offset=offset,
                        filter=broker_pb2.Filter(expression=expression),
                        **request,
                    ),
                    credit_bytes=credit,
                )
            )
        )

    async def grant(self, handle: int, size: int) -> None:
        await self.call.write(
            broker_pb2.PullCommand(credit=broker_pb2.GrantCredit(handle=handle, bytes=size))
        )

    async def unsubscribe(self, handle: int) -> None:
        await self.call.write(
            broker_pb2.PullCommand(unsubscribe=broker_pb2.UnsubscribeQueue(handle=handle))
        )

    async def frame(self, timeout_s: float = 5.0) -> Any:
        return await asyncio.wait_for(self.call.read(), timeout_s)

    async def nothing(self, seconds: float = 0.15) -> None:
        """Nothing comes for a while. Ends the stream."""
        reading = asyncio.ensure_future(self.call.read())
        await asyncio.wait((reading,), timeout=seconds)
        assert not reading.done(), reading.result()
        self.call.cancel()
        await asyncio.wait((reading,))
        assert reading.cancelled() or reading.exception() is not None

    async def bodies(self, count: int) -> dict[int, list[bytes]]:
        """By handle, until `count` messages have come."""
        got: dict[int, list[bytes]] = {}
        while sum(map(len, got.values())) < count:
            frame = await self.frame()
            assert frame.result.code == common_pb2.OK, frame
            records = list(iterate_records(frame.result.records))
            assert len(records) == frame.result.record_count
            got.setdefault(frame.handle, []).extend(record.body for record in records)
        return got


@pytest.fixture
def open_puller(broker: Any) -> Callable[[], Puller]:
    return lambda: Puller(broker)


async def test_a_stream_delivers_what_is_there_and_then_what_comes(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b")
    puller = Puller(broker)
    await puller.subscribe(7)
    frame = await puller.frame()
    assert frame.handle == 7
    result = frame.result
    assert (result.code, result.record_count, result.next_offset) == (common_pb2.OK, 2, 2)
    assert (result.min_offset, result.max_offset) == (0, 2)
    await broker.send_bodies("t", 0, b"c")
    assert await puller.bodies(1) == {7: [b"c"]}


async def test_a_waiting_reader_is_woken_at_once(broker: Any) -> None:
    puller = Puller(broker)
    await puller.subscribe(1)
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await broker.send_bodies("t", 0, b"x")
    await puller.frame()
    assert time.monotonic() - began < 1.0


async def test_only_the_queue_that_grew_wakes_its_reader(broker: Any) -> None:
    puller = Puller(broker)
    for queue_id in range(4):
        await puller.subscribe(queue_id + 10, queue_id)
    await broker.send_bodies("t", 2, b"x")
    assert await puller.bodies(1) == {12: [b"x"]}
    await puller.nothing()


async def test_credit_bounds_what_is_sent_and_one_frame_may_overdraw_it(broker: Any) -> None:
    for _ in range(4):
        await broker.send_bodies("t", 0, *[bytes(1_000)] * 10)
    puller = Puller(broker)
    await puller.subscribe(1, credit=1, max_messages=10)
    assert (await puller.frame()).result.record_count == 10
    await puller.grant(1, 5)  # still overdrawn
    await puller.grant(1, 30_000)
    assert (await puller.frame()).result.next_offset == 20
    assert (await puller.frame()).result.next_offset == 30
    await puller.nothing()


async def test_without_credit_nothing_comes_until_some_is_granted(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"x")
    puller = Puller(broker)
    await puller.subscribe(1, credit=0)
    await puller.subscribe(2, 1, credit=10)
    await broker.send_bodies("t", 1, b"y")
    assert (await puller.frame()).handle == 2
    await puller.grant(1, 1)
    assert (await puller.frame()).handle == 1


async def test_queues_of_a_stream_take_turns(broker: Any) -> None:
    frames = (400, 200, 200)
    for queue_id, count in enumerate(frames):
        for _ in range(count // 20):
            await broker.send_bodies("t", queue_id, *[bytes(2_000)] * 100)
    puller = Puller(broker)
    for queue_id in range(3):
        await puller.subscribe(queue_id, queue_id, credit=8_000_000, max_messages=5)
    handles = [(await puller.frame()).handle for _ in range(sum(frames))]
    # The first has the stream for itself until the others are subscribed, too.
    begin = max(handles.index(each) for each in range(3))
    middle = handles[begin : begin + 36]
    assert all(sorted(middle[at : at + 3]) == [0, 1, 2] for at in range(0, 36, 3)), handles


async def test_limits_bound_a_frame_but_the_first_message_always_comes(broker: Any) -> None:
    await broker.send_bodies("t", 0, *[bytes(10_000)] * 10)
    puller = Puller(broker)
    await puller.subscribe(1, max_bytes=25_000)
    assert (await puller.frame()).result.record_count == 2
    await puller.subscribe(2, max_bytes=100)
    frames = [await puller.frame() for _ in range(8)]
    assert {frame.result.record_count for frame in frames if frame.handle == 2} == {1}


async def test_an_unsubscribed_queue_is_quiet_and_its_handle_is_free(broker: Any) -> None:
    puller = Puller(broker)
    await puller.subscribe(1)
    await puller.unsubscribe(1)
    await puller.subscribe(1, 1)
    await broker.send_bodies("t", 0, b"unheard")
    await broker.send_bodies("t", 1, b"heard")
    assert await puller.bodies(1) == {1: [b"heard"]}


async def test_a_handle_used_twice_ends_the_stream(broker: Any) -> None:
    puller = Puller(broker)
    await puller.subscribe(1)
    await puller.subscribe(1, 1)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await puller.frame()
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.INVALID_ARGUMENT


async def test_an_empty_command_ends_the_stream(broker: Any) -> None:
    puller = Puller(broker)
    await puller.call.write(broker_pb2.PullCommand())
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await puller.frame()
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.INVALID_ARGUMENT


async def test_half_closing_ends_the_stream(broker: Any) -> None:
    puller = Puller(broker)
    await puller.subscribe(1)
    await puller.call.done_writing()
    assert await puller.frame() is grpc.aio.EOF
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert stats.pull_streams == 0


# ---------------------------------------------------------------------------- ranges


async def test_offsets_out_of_range_are_corrected_and_the_stream_goes_on(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b")
    puller = Puller(broker)
    await puller.subscribe(1, offset=-5)
    result = (await puller.frame()).result
    assert (result.code, result.next_offset) == (common_pb2.OFFSET_TOO_SMALL, 0)
    assert await puller.bodies(2) == {1: [b"a", b"b"]}
    await puller.subscribe(2, offset=99)
    result = (await puller.frame()).result
    assert (result.code, result.next_offset) == (common_pb2.OFFSET_TOO_LARGE, 2)
    await broker.send_bodies("t", 0, b"c")
    assert await puller.bodies(2) == {1: [b"c"], 2: [b"c"]}


async def test_an_offset_beyond_an_empty_queue_is_too_large(broker: Any) -> None:
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, offset=3))
    assert (result.code, result.next_offset) == (common_pb2.OFFSET_TOO_LARGE, 0)
    puller = Puller(broker)
    await puller.subscribe(1, offset=3)
    assert (await puller.frame()).result.code == common_pb2.OFFSET_TOO_LARGE
    await broker.send_bodies("t", 0, b"first")
    assert await puller.bodies(1) == {1: [b"first"]}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, common_pb2.TOPIC_NOT_FOUND),
        ({"topic": ""}, common_pb2.ILLEGAL_NAME),
        ({"queue_id": 4}, common_pb2.QUEUE_NOT_FOUND),
        ({"queue_id": -1}, common_pb2.QUEUE_NOT_FOUND),
        ({"topic": "write-only"}, common_pb2.NOT_READABLE_TOPIC),
        ({"expression": "a || *"}, common_pb2.FILTER_ILLEGAL),
        ({"group": "no such group!"}, common_pb2.ILLEGAL_NAME),
        ({"lease_epoch": 5}, common_pb2.INVALID_ARGUMENT),
        ({"lease_epoch": 5, "group": "g"}, common_pb2.LEASE_EXPIRED),
    ],
)
async def test_a_wrong_subscription_ends_its_handle_and_not_the_stream(
    start_broker: Any, changes: dict[str, Any], code: int
) -> None:
    broker = await start_broker(
        topics={
            "t": TopicConfig(name="t", read_queue_count=4, write_queue_count=4),
            "write-only": TopicConfig(name="write-only", perm=2),
        }
    )
    puller = Puller(broker)
    await puller.subscribe(1, **changes)
    frame = await puller.frame()
    assert (frame.handle, frame.result.code) == (1, code), frame
    assert frame.result.message
    await broker.send_bodies("t", 0, b"x")
    await puller.subscribe(1)
    assert await puller.bodies(1) == {1: [b"x"]}


async def test_sql_that_is_not_of_the_language_is_refused(broker: Any) -> None:
    request = broker_pb2.PullRequest(
        topic="t", filter=broker_pb2.Filter(type=broker_pb2.SQL92, expression="a LIKE 'x%'")
    )
    with pytest.raises(grpc.aio.AioRpcError, match="at character 3") as failure:
        await broker.pull.Pull(request)
    assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.FILTER_ILLEGAL


# ---------------------------------------------------------------------------- filters


async def test_only_messages_with_a_wanted_tag_are_sent(broker: Any) -> None:
    for tag in ("a", "b", "c", "a"):
        await broker.send_bodies("t", 0, tag.encode(), tag=tag)
    await broker.send_bodies("t", 0, b"none")
    puller = Puller(broker)
    await puller.subscribe(1, expression="a || c")
    assert await puller.bodies(3) == {1: [b"a", b"c", b"a"]}


async def test_a_filter_that_lets_nothing_through_still_tells_how_far_it_is(broker: Any) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 20, tag="other")
    puller = Puller(broker)
    await puller.subscribe(1, expression="wanted")
    result = (await puller.frame()).result
    assert (result.code, result.record_count, result.next_offset) == (common_pb2.OK, 0, 20)
    await broker.send_bodies("t", 0, b"y", tag="wanted")
    assert await puller.bodies(1) == {1: [b"y"]}


async def test_a_single_pull_passes_over_what_does_not_match_and_waits_behind_it(
    broker: Any,
) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 20, tag="other")
    request = broker_pb2.PullRequest(
        topic="t", filter=broker_pb2.Filter(expression="wanted"), wait_ms=5_000
    )
    pulling = asyncio.ensure_future(broker.pull.Pull(request))
    await asyncio.sleep(0.1)
    assert not pulling.done()
    await broker.send_bodies("t", 0, b"y", tag="wanted")
    result = await pulling
    assert (result.code, result.record_count, result.next_offset) == (common_pb2.OK, 1, 21)
    request.wait_ms = 0
    request.offset = 21
    assert (await broker.pull.Pull(request)).code == common_pb2.NO_NEW_MESSAGE


# ---------------------------------------------------------------------------- single pulls


async def test_a_single_pull_answers_at_once_waits_or_comes_back_empty(broker: Any) -> None:
    request = broker_pb2.PullRequest(topic="t", queue_id=0)
    assert (await broker.pull.Pull(request)).code == common_pb2.NO_NEW_MESSAGE
    request.wait_ms = 100
    began = time.monotonic()
    assert (await broker.pull.Pull(request)).code == common_pb2.NO_NEW_MESSAGE
    assert 0.09 <= time.monotonic() - began < 2
    request.wait_ms = 10_000
    pulling = asyncio.ensure_future(broker.pull.Pull(request))
    await asyncio.sleep(0.05)
    await broker.send_bodies("t", 0, b"x")
    result = await asyncio.wait_for(pulling, 2)
    assert (result.code, result.next_offset, result.record_count) == (common_pb2.OK, 1, 1)


async def test_reading_from_the_start_gives_every_message_once_in_order(
    broker: Any, make_batch: MakeBatch
) -> None:
    sent = 0
    for first in range(0, 3_000, 300):
        frame = broker_pb2.SendFrame(
            batches=[
                make_batch("t", queue_id, *[b"%d/%d" % (queue_id, first + n) for n in range(300)])
                for queue_id in range(4)
            ]
        )
        sent += 1_200
        assert {ack.code for ack in await broker.exchange(frame)} == {common_pb2.OK}
    puller = Puller(broker)
    for queue_id in range(4):
        await puller.subscribe(queue_id, queue_id, credit=64 * MIB, max_bytes=20_000)
    got = await puller.bodies(sent)
    for queue_id in range(4):
        assert got[queue_id] == [b"%d/%d" % (queue_id, n) for n in range(3_000)]


class ColdFile:
    """A real file of which nothing is ever in the page cache."""

    def __init__(self, file: DiskFile) -> None:
        self.write_at = file.write_at
        self.read_at = file.read_at
        self.datasync = file.datasync
        self.allocate = file.allocate
        self.truncate = file.truncate
        self.next_data = file.next_data
        self.advise = file.advise
        self.touch_pages = file.touch_pages
        self.lock_in_memory = file.lock_in_memory
        self.size = file.size
        self.close = file.close

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        return False


class ColdDisk(RealDisk):
    """A real folder whose files are always cold."""

    __slots__ = ()

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        return ColdFile(super().open_file(path, create=create, read_only=read_only))


async def test_cold_data_is_read_on_other_threads_in_order_and_within_the_credit(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker(disk=ColdDisk(tmp_path / "store"))
    for queue_id in range(4):
        for first in range(0, 200, 50):
            bodies = [b"%d" % n for n in range(first, first + 50)]
            await broker.send_bodies("t", queue_id, *bodies)
    puller = Puller(broker)
    for queue_id in range(4):
        await puller.subscribe(queue_id, queue_id, max_messages=20)
    got = await puller.bodies(800)
    assert set(got) == {0, 1, 2, 3}
    assert all(bodies == [b"%d" % n for n in range(200)] for bodies in got.values())
    await puller.subscribe(9, 0, credit=1, max_messages=10)
    assert (await puller.frame()).result.record_count == 10
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=1, offset=190))
    assert result.record_count == 10
    await puller.nothing()


async def test_a_cold_read_of_an_unsubscribed_queue_goes_nowhere(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker(disk=ColdDisk(tmp_path / "store"))
    await broker.send_bodies("t", 0, b"x")
    puller = Puller(broker)
    for handle in range(50):
        await puller.subscribe(handle, credit=1)
        await puller.unsubscribe(handle)
    await puller.subscribe(99, 0)
    while (frame := await puller.frame()).handle != 99:
        assert frame.result.code == common_pb2.OK
    assert frame.result.record_count == 1


async def test_a_stopping_broker_tells_its_readers(broker: Any) -> None:
    puller = Puller(broker)
    await puller.subscribe(1)
    await puller.subscribe(2, 1)
    await asyncio.sleep(0.05)
    broker.lifecycle.stop.set()
    frames = [await puller.frame(), await puller.frame()]
    assert {(frame.handle, frame.result.code) for frame in frames} == {
        (1, common_pb2.SHUTTING_DOWN),
        (2, common_pb2.SHUTTING_DOWN),
    }
    assert await puller.frame() is grpc.aio.EOF
