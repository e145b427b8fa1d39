"""Single messages over real gRPC: by where they lie, by the id that says so, by key."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.reading import message_lookup
from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.sending.guard import Guard
from aerobee.runtime import errors
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.index.message_query import MessageQuery
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.record import HostAddress, Record, encode_record, iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fault_disk import FaultDisk
from tests.support.grpcio_client import error_from_rpc
from tests.support.stores import append, batch_of, end_topic, open_store

MIB = 1024 * 1024
HOST = HostAddress.parse("127.0.0.1:10911")
StartBroker = Callable[..., Awaitable[Any]]


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, errors.AerobeeError]:
    try:
        answer = await call
    except grpc.aio.AioRpcError as failure:
        return failure.code(), error_from_rpc(failure, "the broker")
    raise AssertionError(f"it was not refused: {answer!r:.200}")


async def at(broker: Any, physical_offset: int) -> bytes:
    request = broker_pb2.GetMessageRequest(physical_offset=physical_offset)
    return bytes((await broker.admin.GetMessage(request)).record)


async def with_id(broker: Any, message_id: str) -> bytes:
    request = broker_pb2.GetMessageRequest(offset_message_id=message_id)
    return bytes((await broker.admin.GetMessage(request)).record)


async def pulled(broker: Any, topic: str, queue_id: int) -> list[Record]:
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic=topic, queue_id=queue_id))
    return list(iterate_records(result.records))


def lookup_over(store: MessageStore, pool: Executor) -> MessageLookup:
    """Without a broker around it."""
    clock = ManualClock()
    delay = LoopDelay(clock)
    reads = ReadPool(pool, Counters(), clock, loop_delay=delay, threads=1, bytes_per_s=0)
    return MessageLookup(Guard(TopicTable(), broker_name="a"), store, reads, index_enabled=True)


# ------------------------------------------------------------------------------ by place


@pytest.mark.parametrize("store_host", ["127.0.0.1:10911", "[::1]:10911"])
async def test_a_message_is_found_by_its_offset_and_by_the_id_that_names_it(
    start_broker: StartBroker, store_host: str
) -> None:
    broker = await start_broker(store_host=store_host)
    for body in (b"a", b"b" * 5_000, b"c"):
        response = await broker.send.Send(
            broker_pb2.SendRequest(topic="t", queue_id=1, body=body, tag="x")
        )
        assert response.ack.code == common_pb2.OK
    records = await pulled(broker, "t", 1)
    assert [record.body for record in records] == [b"a", b"b" * 5_000, b"c"]
    for record in records:
        message_id = offset_message_id(record.store_host, record.physical_offset)
        assert len(message_id) == (56 if "[" in store_host else 32)
        assert await at(broker, record.physical_offset) == record.raw
        assert await with_id(broker, message_id) == record.raw
        assert await with_id(broker, message_id.lower()) == record.raw


async def test_no_offset_but_that_of_a_record_finds_anything(start_broker: StartBroker) -> None:
    """Not even one at which the body of a message looks like a record."""
    inner = encode_record(
        topic=b"t", body=b"inner", properties=b"", born_timestamp_ms=1, born_host=HOST
    )
    broker = await start_broker()
    await broker.send_bodies("t", 0, inner, b"plain", inner + inner)
    starts = {record.physical_offset for record in await pulled(broker, "t", 0)}
    end = (await broker.admin.GetStats(broker_pb2.GetStatsRequest())).log_appended_end
    assert len(starts) == 3
    for offset in sorted({*range(-3, end + 3)} - starts):
        status, error = await refusal(at(broker, offset))
        assert status is grpc.StatusCode.NOT_FOUND
        assert type(error) is errors.MessageNotFound, error
    for offset in (-(1 << 63), (1 << 63) - 1, end + (1 << 40)):
        _, error = await refusal(at(broker, offset))
        assert str(error) == (
            f"there is no message at physical offset {offset}: the log holds 0 to {end}"
        )


async def test_what_consumers_do_not_see_yet_is_not_shown(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    appended = store.append(batch_of("t", b"body"), queue_id=0)
    with ThreadPoolExecutor(1) as pool:
        lookup = lookup_over(store, pool)
        with pytest.raises(errors.MessageNotFound, match="the log holds 0 to 0"):
            await lookup.by_offset(appended.base_physical_offset)
        store.confirm(store.appended_end)
        assert Record(await lookup.by_offset(appended.base_physical_offset)).body == b"body"
    store.close()


async def test_messages_of_a_deleted_topic_are_not_found_by_place_or_key(tmp_path: Path) -> None:
    """Neither while there is no topic of that name nor among the messages of the next one."""
    store = open_store(tmp_path)
    table = TopicTable(topics("t"))
    with ThreadPoolExecutor(1) as pool:
        clock = ManualClock()
        reads = ReadPool(
            pool, Counters(), clock, loop_delay=LoopDelay(clock), threads=1, bytes_per_s=0
        )
        lookup = MessageLookup(Guard(table, broker_name="a"), store, reads, index_enabled=True)
        query = KeyQuery("t", "k", is_unique_key=False)

        def sent(body: bytes) -> int:
            batch = batch_of("t", body, properties={"KEYS": "k"})
            position = store.append(batch, queue_id=0).base_physical_offset
            store.confirm(store.appended_end)
            return position

        old = sent(b"old")
        assert len((await lookup.by_key(query)).records) == 1
        end_topic(store, "t")
        store.confirm(store.appended_end)
        assert (await lookup.by_key(query)).records == ()
        with pytest.raises(errors.MessageNotFound, match="which was deleted"):
            await lookup.by_offset(old)
        new = sent(b"new")
        (found,) = (await lookup.by_key(query)).records
        assert Record(found).body == Record(await lookup.by_offset(new)).body == b"new"
        with pytest.raises(errors.MessageNotFound, match="which was deleted"):
            await lookup.by_offset(old)
    store.close()


async def test_the_blank_at_the_end_of_a_segment_is_no_message(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(12):
        append(store, "t", 0, bytes(600))
    starts = set()
    with ThreadPoolExecutor(1) as pool:
        lookup = lookup_over(store, pool)
        for offset in range(store.appended_end):
            try:
                starts.add(Record(await lookup.by_offset(offset)).physical_offset)
            except errors.MessageNotFound:
                continue
    assert len(store.log.segments()) > 1
    assert len(starts) == 12
    store.close()


async def test_a_message_keeps_its_id_when_its_broker_moves(start_broker: StartBroker) -> None:
    first = await start_broker(store_host="127.0.0.1:10911")
    await first.send_bodies("t", 0, b"before")
    await first.stop()
    second = await start_broker(store_host="10.1.2.3:10921")
    await second.send_bodies("t", 0, b"after")
    before, after = await pulled(second, "t", 0)
    old_id = offset_message_id(HOST, before.physical_offset)
    assert Record(await with_id(second, old_id)).body == b"before"
    new_host = HostAddress.parse("10.1.2.3:10921")
    new_id = offset_message_id(new_host, after.physical_offset)
    assert Record(await with_id(second, new_id)).body == b"after"
    # The host is part of the id: a message of another broker is not taken for it.
    status, error = await refusal(with_id(second, offset_message_id(HOST, after.physical_offset)))
    assert status is grpc.StatusCode.NOT_FOUND
    assert str(error).endswith(
        f"was stored by the broker at 127.0.0.1:10911; the record at physical offset "
        f"{after.physical_offset} here was stored by the broker at 10.1.2.3:10921"
    )


@pytest.mark.parametrize(
    "message_id",
    [
        "",
        "7F000001",
        "Z" * 32,
        "7F0000010000" * 5,
        "7F 00 00 01 00 00 2A 9F 00 00 00",
        "\u0661" * 32,
    ],
)
async def test_an_id_that_is_none_is_refused_as_such(broker: Any, message_id: str) -> None:
    status, error = await refusal(with_id(broker, message_id))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not an offset message id: 32 or 56 hex digits" in str(error)


async def test_a_request_without_a_place_is_refused(broker: Any) -> None:
    status, error = await refusal(broker.admin.GetMessage(broker_pb2.GetMessageRequest()))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error) == "the request names no message: give an id or a physical offset"


async def test_a_damaged_message_is_not_shown_as_a_whole_one(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"sound", b"x" * 100)
    sound, damaged = await pulled(broker, "t", 0)
    with next((tmp_path / "store" / "commitlog").glob("0*")).open("r+b") as log:
        log.seek(damaged.physical_offset + 100)
        log.write(b"y")
    status, error = await refusal(at(broker, damaged.physical_offset))
    assert status is grpc.StatusCode.NOT_FOUND
    assert "is damaged (the body's CRC is" in str(error)
    assert "check the folder with `aerobee store verify`" in str(error)
    assert await at(broker, sound.physical_offset) == sound.raw


async def test_a_disk_that_cannot_be_read_is_named_and_the_broker_lives_on(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    disk = FaultDisk(tmp_path / "store")
    broker = await start_broker(disk=disk)
    await broker.send_bodies("t", 0, b"body")
    disk.read_error = (
        lambda path: path.startswith("commitlog"),
        OSError(errno.EIO, os.strerror(errno.EIO)),
    )
    _, error = await refusal(at(broker, 0))
    assert str(error).startswith("the disk could not be read (Input/output error): check it")
    disk.read_error = None
    assert Record(await at(broker, 0)).body == b"body"
    assert (await broker.send_bodies("t", 0, b"next")).code == common_pb2.OK


async def test_many_lookups_at_once_are_all_answered(broker: Any) -> None:
    await broker.send_bodies("t", 0, *(b"%d" % number for number in range(200)))
    records = await pulled(broker, "t", 0)
    answers = await asyncio.gather(*(at(broker, record.physical_offset) for record in records))
    assert answers == [record.raw for record in records]


# ------------------------------------------------------------------------------ by key


async def send(
    broker: Any,
    topic: str,
    body: bytes,
    *,
    keys: str = "",
    unique_key: str = "",
    queue_id: int = 0,
) -> int:
    """Store one message; its store time in ms."""
    properties = {"KEYS": keys, "UNIQ_KEY": unique_key}
    batch = batch_of(topic, body, properties={k: v for k, v in properties.items() if v})
    record_batch = broker_pb2.RecordBatch(
        topic=topic,
        queue_id=queue_id,
        records=bytes(batch.buffer),
        record_sizes=[len(batch.buffer)],
    )
    (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[record_batch]))
    assert ack.code == common_pb2.OK, ack
    return int(ack.store_timestamp_ms)


async def query(broker: Any, topic: str = "t", **request: Any) -> broker_pb2.QueryMessagesResponse:
    response: broker_pb2.QueryMessagesResponse = await broker.admin.QueryMessages(
        broker_pb2.QueryMessagesRequest(topic=topic, **request)
    )
    return response


async def bodies(broker: Any, topic: str = "t", **request: Any) -> list[bytes]:
    found = await query(broker, topic, **request)
    return [Record(data).body for data in found.records]


def topics(*names: str) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name=name, read_queue_count=4, write_queue_count=4) for name in names}


SMALL_INDEX = StoreConfig(
    segment_bytes=16 * MIB, disk_free_bytes_min=0, index_slots_max=100, index_entries_max=50
)


async def test_a_key_finds_its_messages_newest_first_at_once(start_broker: StartBroker) -> None:
    """Also before any of it is in an index file."""
    broker = await start_broker()
    for number in range(6):
        keys = "even all" if number % 2 == 0 else "odd all"
        await send(broker, "t", b"%d" % number, keys=keys, queue_id=number % 4)
    assert await bodies(broker, key="even") == [b"4", b"2", b"0"]
    assert await bodies(broker, key="all") == [b"5", b"4", b"3", b"2", b"1", b"0"]
    assert await bodies(broker, key="eve") == []
    assert await bodies(broker, key="even all") == []
    found = await query(broker, key="all", max_messages=4)
    assert [Record(data).body for data in found.records] == [b"5", b"4", b"3", b"2"]
    assert found.more
    assert not (await query(broker, key="all", max_messages=6)).more
    end = (await broker.admin.GetStats(broker_pb2.GetStatsRequest())).log_appended_end
    assert found.indexed_physical_offset == end
    assert found.indexed_timestamp_ms == Record(found.records[0]).store_timestamp_ms


async def test_keys_and_unique_keys_are_not_taken_for_each_other(broker: Any) -> None:
    one, same = "1" * 32, "5" * 32
    await send(broker, "t", b"a", keys=same, unique_key=one)
    await send(broker, "t", b"b", keys=one, unique_key=same)
    assert await bodies(broker, key=same) == [b"a"]
    assert await bodies(broker, unique_key=same) == [b"b"]
    assert await bodies(broker, unique_key=one) == [b"a"]


async def test_keys_and_topics_with_equal_hashes_are_told_apart(start_broker: StartBroker) -> None:
    """`Aa` and `BB` have the same hash, alone and before or after anything."""
    broker = await start_broker(topics=topics("Aa", "BB"), store=SMALL_INDEX)
    for number in range(60):
        await send(broker, "Aa" if number % 2 else "BB", b"%d" % number, keys="Aa")
        await send(broker, "Aa" if number % 2 else "BB", b"-%d" % number, keys="BB")
    for topic, rest in (("Aa", 1), ("BB", 0)):
        wanted = [b"%d" % number for number in range(60) if number % 2 == rest][::-1]
        assert await bodies(broker, topic, key="Aa") == wanted
        assert await bodies(broker, topic, key="BB") == [b"-" + body for body in wanted]


async def test_times_are_exact_and_include_both_ends(start_broker: StartBroker) -> None:
    broker = await start_broker(store=SMALL_INDEX)
    times: list[int] = []
    for number in range(120):  # over several index files
        times.append(await send(broker, "t", b"%d" % number, keys="k"))
        await asyncio.sleep(0.003)
    for begin, end in ((0, 0), (times[40], 0), (0, times[40]), (times[50], times[90])):
        wanted = [
            b"%d" % number
            for number, stored in enumerate(times)
            if stored >= begin and (end == 0 or stored <= end)
        ][::-1]
        found = await query(broker, key="k", begin_ms=begin, end_ms=end)
        assert [Record(data).body for data in found.records] == wanted[:64]
        assert found.more == (len(wanted) > 64)
    assert await bodies(broker, key="k", begin_ms=times[-1] + 1) == []
    assert await bodies(broker, key="k", end_ms=times[0] - 1) == []


async def test_an_answer_has_at_most_64_messages_and_fits_into_a_frame(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    for number in range(70):
        await send(broker, "t", b"%d" % number, keys="small")
    found = await query(broker, key="small", max_messages=1_000)
    assert (len(found.records), found.more) == (64, True)
    for number in range(7):
        await send(broker, "t", b"%d" % number + bytes(3 * MIB), keys="large")
    found = await query(broker, key="large")
    assert [Record(data).body[:1] for data in found.records] == [b"6", b"5", b"4", b"3", b"2"]
    assert found.more


@pytest.mark.parametrize("clean", [True, False])
async def test_after_a_restart_every_key_is_found(
    start_broker: StartBroker, tmp_path: Path, clean: bool
) -> None:
    store = replace(SMALL_INDEX, checkpoint_interval_ms=50)
    broker = await start_broker(store=store)
    for number in range(150):
        await send(broker, "t", b"%d" % number, keys=f"k{number % 50}")
    root = tmp_path / "store"
    if clean:
        await broker.stop()
    else:
        shutil.copytree(root, tmp_path / "crashed")
        root = tmp_path / "crashed"
    again = await start_broker(store=store, root=root)
    for key in range(0, 50, 7):
        wanted = [b"%d" % number for number in (key + 100, key + 50, key)]
        assert await bodies(again, key=f"k{key}") == wanted
    await send(again, "t", b"new", keys="k0")
    assert (await bodies(again, key="k0"))[0] == b"new"


async def test_a_query_that_cannot_be_answered_says_why(
    start_broker: StartBroker, broker: Any, tmp_path: Path
) -> None:
    for request, kind, words in (
        ({"topic": "unknown", "key": "k"}, errors.TopicNotFound, "not known to broker"),
        ({"topic": "no/slash", "key": "k"}, errors.IllegalName, "illegal"),
        ({"topic": "t"}, errors.InvalidArgument, "the key is empty"),
        ({"topic": "t", "unique_key": ""}, errors.InvalidArgument, "the key is empty"),
        ({"topic": "t", "key": "k" * 32_768}, errors.InvalidArgument, "longer than the 32767"),
        ({"topic": "t", "key": "é" * 16_384}, errors.InvalidArgument, "longer than the 32767"),
        ({"topic": "t" * 300, "key": "k"}, errors.IllegalName, "at most"),
        (
            {"topic": "t", "key": "k", "begin_ms": 9, "end_ms": 8},
            errors.InvalidArgument,
            "the start 9 is later than the end 8",
        ),
    ):
        call = broker.admin.QueryMessages(broker_pb2.QueryMessagesRequest(**request))
        _, error = await refusal(call)
        assert type(error) is kind
        assert words in str(error)
    without = await start_broker(
        root=tmp_path / "without", store=replace(SMALL_INDEX, index_enabled=False)
    )
    await send(without, "t", b"body", keys="k")
    _, error = await refusal(query(without, key="k"))
    assert "this broker keeps no index (store.index_enabled)" in str(error)


async def test_a_key_of_any_characters_is_found(broker: Any) -> None:
    for key in ("订单-7", "a#b", "#", "😀", "x" * 2_000, "polygenelubricants"):
        await send(broker, "t", key.encode(), keys=key)
        assert await bodies(broker, key=key) == [key.encode()]


async def test_what_was_removed_from_the_log_is_found_no_more(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store = replace(SMALL_INDEX, segment_bytes=64 * 1024)
    broker = await start_broker(store=store)
    for number in range(40):
        await send(broker, "t", b"%2d" % number + bytes(4_000), keys="all")
    old = (await pulled(broker, "t", 0))[0]
    await broker.stop()
    (tmp_path / "store" / "commitlog" / "00000000000000000000").unlink()
    again = await start_broker(store=store)
    left = [int(body[:2]) for body in await bodies(again, key="all")]
    assert left == list(range(39, left[-1] - 1, -1))
    assert left[-1] > 0
    message_id = offset_message_id(old.store_host, old.physical_offset)
    for call in (at(again, old.physical_offset), with_id(again, message_id)):
        status, error = await refusal(call)
        assert status is grpc.StatusCode.NOT_FOUND
        assert str(error).startswith(
            "there is no message at physical offset 0: the log holds 65536"
        )


async def test_a_query_that_nobody_waits_for_any_more_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        store.append(batch_of("t", b"body", properties={"KEYS": "k"}), queue_id=0)
    store.confirm(store.appended_end)
    table = TopicTable(topics("t"))
    clock, left = ManualClock(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(left.wait)
        reads = ReadPool(
            pool, Counters(), clock, loop_delay=LoopDelay(clock), threads=1, bytes_per_s=0
        )
        lookup = MessageLookup(Guard(table, broker_name="a"), store, reads, index_enabled=True)
        plans: list[MessageQuery] = []

        class Noted(MessageQuery):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                plans.append(self)

        monkeypatch.setattr(message_lookup, "MessageQuery", Noted)
        query = asyncio.create_task(lookup.by_key(KeyQuery("t", "k", is_unique_key=False)))
        await asyncio.sleep(0.05)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        left.set()
        assert blocked.result()
    assert plans[0].cut_short
    assert list(plans[0].records()) == []
