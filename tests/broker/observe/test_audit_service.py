"""What a broker tells an audit, over real gRPC: everything, at one reading, and nothing wrong."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from aerobee.broker.delayed.counts import WaitingCount
from aerobee.broker.delayed.feature import Delays
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.settings import Registration
from aerobee.rocketmq_api.clients.table import Client
from aerobee.runtime.errors import Busy, DeadlineExceeded
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.record_layout import MAGIC_BLANK
from aerobee.v1 import audit_pb2, audit_pb2_grpc, broker_pb2, common_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.delayed import send_later, settled
from tests.support.grpcio_client import error_from_rpc
from tests.support.waiting import until

MIB = 1024 * 1024
JOURNAL = "AEROBEE_OFFSET_JOURNAL"


@dataclass
class Taken:
    """A whole reading, row by row."""

    broker: audit_pb2.SnapshotBroker = field(default_factory=audit_pb2.SnapshotBroker)
    kinds: list[str] = field(default_factory=list)
    row_counts: list[int] = field(default_factory=list)
    topics: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    queues: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    commits: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    leases: dict[tuple[str, str, int], tuple[str, int]] = field(default_factory=dict)
    members: dict[tuple[str, str], broker_pb2.GroupMember] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    segments: list[tuple[int, int, int]] = field(default_factory=list)
    minutes: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting: dict[tuple[str, bool], tuple[int, int]] = field(default_factory=dict)

    def take(self, part: audit_pb2.SnapshotPart) -> None:
        kind = str(part.WhichOneof("part"))
        self.kinds.append(kind)
        getattr(self, f"_take_{kind}")(getattr(part, kind))

    def _take_broker(self, broker: audit_pb2.SnapshotBroker) -> None:
        self.broker = broker

    def _take_end(self, end: audit_pb2.SnapshotEnd) -> None:
        self.row_counts = list(end.row_counts)

    def _take_topics(self, rows: audit_pb2.TopicRows) -> None:
        counts = zip(rows.read_queue_counts, rows.write_queue_counts, rows.perms, strict=True)
        self.topics.update(zip(rows.topics, counts, strict=True))

    def _take_queues(self, rows: audit_pb2.QueueRows) -> None:
        for row, code in enumerate(rows.topic_codes):
            bounds = rows.min_offsets[row], rows.max_offsets[row], rows.last_store_ms[row]
            self.queues[rows.topics[code], rows.queue_ids[row]] = bounds

    def _take_leases(self, rows: audit_pb2.LeaseRows) -> None:
        for row, queue_id in enumerate(rows.queue_ids):
            name = rows.groups[rows.group_codes[row]], rows.topics[rows.topic_codes[row]]
            held = rows.clients[rows.client_codes[row]], rows.lease_epochs[row]
            self.leases[*name, queue_id] = held

    def _take_members(self, rows: audit_pb2.MemberRows) -> None:
        for code, member in zip(rows.group_codes, rows.members, strict=True):
            self.members[rows.groups[code], member.client_id] = member

    def _take_epochs(self, rows: audit_pb2.EpochRows) -> None:
        self.epochs += zip(rows.epochs, rows.start_offsets, strict=True)

    def _take_segments(self, rows: audit_pb2.SegmentRows) -> None:
        self.segments += zip(rows.positions, rows.sizes, rows.first_store_ms, strict=True)

    def _take_minutes(self, rows: audit_pb2.MinuteRows) -> None:
        for row, code in enumerate(rows.topic_codes):
            self.minutes[rows.topics[code], rows.minutes[row]] = rows.acknowledged[row]

    def _take_waiting(self, rows: audit_pb2.WaitingRows) -> None:
        counts = zip(rows.messages, rows.first_due_ms, strict=True)
        self.waiting.update(zip(zip(rows.topics, rows.timers, strict=True), counts, strict=True))

    def _take_commits(self, rows: audit_pb2.CommitRows) -> None:
        for row, queue_id in enumerate(rows.queue_ids):
            name = rows.groups[rows.group_codes[row]], rows.topics[rows.topic_codes[row]]
            self.commits[*name, queue_id] = {
                "offset": rows.offsets[row],
                "lease_epoch": rows.lease_epochs[row],
                "committed_at_ms": rows.committed_at_ms[row],
                "client": rows.clients[rows.client_codes[row]],
                "reset": rows.resets[row],
                "first_unread_ms": rows.first_unread_ms[row] if rows.first_unread_ms else None,
                "matching": rows.matching_unread[row] if rows.matching_unread else None,
            }


async def take(broker: Any, **request: Any) -> Taken:
    taken = Taken()
    stub = audit_pb2_grpc.AuditServiceStub(broker.channel)
    async for part in stub.Snapshot(audit_pb2.SnapshotRequest(**request)):
        taken.take(part)
    return taken


async def commit(broker: Any, group: str, queue_id: int, offset: int, **more: Any) -> None:
    topic = more.pop("topic", "t")
    epoch = more.pop("lease_epoch", 0)
    queue = broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset, lease_epoch=epoch)
    answer = await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group=group, client_id=more.pop("client_id", "c1"), offsets=[queue]
        )
    )
    assert [result.code for result in answer.results] == [common_pb2.OK]


async def join(
    broker: Any, group: str, client_id: str, *expressions: str, is_sql: bool = False
) -> Any:
    """A member that asks for the tags in `expressions` of topic `t`."""
    call = broker.groups.Membership()
    kind = broker_pb2.SQL92 if is_sql else broker_pb2.TAG
    subscriptions = [
        broker_pb2.Subscription(
            topic="t", filter=broker_pb2.Filter(type=kind, expression=expression)
        )
        for expression in expressions or ("*",)
    ]
    joining = broker_pb2.Join(
        group=group, client_id=client_id, instance="1", subscriptions=subscriptions
    )
    await call.write(broker_pb2.MemberEvent(join=joining))
    while not (await call.read()).HasField("joined"):
        pass
    return call


async def test_a_reading_holds_all_that_the_broker_knows_of_offsets(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b", b"c")
    await broker.send_bodies("t", 2, b"d")
    await commit(broker, "g", 0, 2)
    taken = await take(broker, with_first_unread=True)
    assert taken.topics["t"] == (4, 4, 6)
    first, end, last_ms = taken.queues["t", 0]
    assert (first, end) == (0, 3)
    assert taken.queues["t", 1] == (0, 0, -1)
    assert taken.queues["t", 2][:2] == (0, 1)
    committed = taken.commits["g", "t", 0]
    assert committed["offset"] == 2
    assert committed["client"] == "c1"
    assert committed["lease_epoch"] == 0
    assert committed["first_unread_ms"] == last_ms
    seen = taken.broker
    assert last_ms <= committed["committed_at_ms"] <= seen.commits_read_at_ms
    assert seen.commits_read_at_ms <= seen.ends_read_at_ms
    assert seen.stats.role == common_pb2.MASTER
    assert seen.stats.log_confirmed_end == sum(size for _, size, _ in taken.segments)
    assert taken.segments[0][2] <= last_ms
    assert list(taken.minutes.values()) == [4]
    assert taken.kinds[0] == "broker"
    assert taken.kinds[-1] == "end"
    assert taken.row_counts == [1, 11, 31, 1, 0, 0, len(taken.epochs), 1, 1, 0]


async def test_what_waits_is_counted_by_topic_and_by_what_it_waits_for(broker: Any) -> None:
    due_ms = broker.clock.now_ms() + 3_600_000
    send_later(broker, "t", [b"1", b"2"], deliver_ms=due_ms)
    send_later(broker, "t", [b"3"], deliver_ms=due_ms + 1_000)
    before_ms = broker.clock.now_ms()
    send_later(broker, "t", [b"4", b"5"], level=18)
    await settled(broker)
    taken = await take(broker)
    assert taken.waiting["t", True] == (3, due_ms)
    count, first_due_ms = taken.waiting["t", False]
    assert count == 2
    assert before_ms + 7_200_000 <= first_due_ms <= broker.clock.now_ms() + 7_200_000
    assert taken.row_counts[audit_pb2.SNAPSHOT_WAITING] == 2
    assert not (await take(broker, topics=["other"])).waiting


async def test_what_waits_is_not_known_while_the_index_is_damaged(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged() -> list[WaitingCount]:
        raise Busy("the index of delayed messages is being rebuilt")

    monkeypatch.setattr(broker.feature(Delays).counts, "by_topic", damaged)
    assert (await take(broker)).waiting == {("", False): (-1, -1)}


async def test_leases_and_members_are_told_with_who_holds_what(broker: Any) -> None:
    await broker.send_bodies("t", 1, b"a", b"b")
    member = await join(broker, "g", "c9", "a || b")
    await member.write(
        broker_pb2.MemberEvent(acquire=broker_pb2.AcquireLease(topic="t", queue_id=1))
    )
    while not (event := await member.read()).HasField("granted"):
        pass
    epoch = event.granted.epoch
    await commit(broker, "g", 1, 1, client_id="c9", lease_epoch=epoch)
    taken = await take(broker)
    assert taken.leases == {("g", "t", 1): ("c9", epoch)}
    assert taken.commits["g", "t", 1]["lease_epoch"] == epoch
    assert taken.commits["g", "t", 1]["client"] == "c9"
    seen = taken.members["g", "c9"]
    assert [one.filter.expression for one in seen.subscriptions] == ["a || b"]
    assert not seen.broadcasting


async def test_only_what_is_asked_for_is_sent(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a")
    for group in ("g", "h"):
        await commit(broker, group, 0, 1)
    tables = [audit_pb2.SNAPSHOT_COMMITS]
    assert (await take(broker, tables=tables)).kinds == ["broker", "commits", "end"]
    taken = await take(broker, groups=["h"], topics=["t"])
    assert [group for group, _, _ in taken.commits] == ["h"]
    assert {topic for topic, _ in taken.queues} == {"t"}
    assert set(taken.topics) == {"t"}
    assert not (await take(broker, topics=["other"])).commits


async def test_a_reset_says_that_it_was_one(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a", b"b")
    await commit(broker, "g", 0, 2)
    queue = broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)
    await broker.offsets.ResetOffsets(broker_pb2.ResetOffsetsRequest(group="g", offsets=[queue]))
    committed = (await take(broker)).commits["g", "t", 0]
    assert (committed["offset"], committed["client"], committed["reset"]) == (1, "", True)


async def test_who_committed_is_known_after_a_restart(start_broker: Any, tmp_path: Path) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"a", b"b")
    await commit(broker, "g", 0, 1, client_id="10.0.0.7@4711")
    before = (await take(broker)).commits
    await broker.stop()
    broker = await start_broker()
    assert (await take(broker)).commits == before


async def test_unread_messages_are_counted_by_the_tags_that_members_ask_for(broker: Any) -> None:
    for tag, count in (("a", 3), ("b", 2), ("c", 4), ("", 1)):
        await broker.send_bodies("t", 0, *[b"x"] * count, tag=tag)
    await broker.send_bodies("t", 1, b"x", tag="a")
    for group in ("two", "one", "all", "nobody"):
        await commit(broker, group, 0, 1)
    await commit(broker, "one", 1, 1)
    members = [
        await join(broker, "two", "c1", "a || c"),
        await join(broker, "one", "c1", "a"),
        await join(broker, "one", "c2", "b"),
        await join(broker, "all", "c1", "*"),
    ]
    taken = await take(broker, with_matching_unread=True)
    found = {(group, queue): row["matching"] for (group, _, queue), row in taken.commits.items()}
    assert found == {
        ("two", 0): 6,
        ("one", 0): 4,
        ("one", 1): 0,
        ("all", 0): -1,
        ("nobody", 0): -1,
    }
    del members


async def test_unread_messages_are_counted_by_the_expressions_that_members_ask_for(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.observe.audit.unread.JUDGED_PER_TURN", 3)
    for tag, count in (("a", 3), ("b", 2), ("c", 4), ("", 1)):
        await broker.send_bodies("t", 0, *[b"x"] * count, tag=tag)
    for group in ("sql", "none", "both", "nobody"):
        await commit(broker, group, 0, 1)
    wanted = "TAGS IS NULL OR TAGS IN ('a', 'c')"
    members = [
        await join(broker, "sql", "c1", wanted, is_sql=True),
        await join(broker, "sql", "c2", wanted, is_sql=True),
        await join(broker, "none", "c1", "TAGS = 'x'", is_sql=True),
        await join(broker, "both", "c1", "TAGS = 'a'", is_sql=True),
        await join(broker, "both", "c2", "b || c"),
    ]
    taken = await take(broker, with_matching_unread=True)
    found = {group: row["matching"] for (group, _, _), row in taken.commits.items()}
    assert found == {"sql": 7, "none": 0, "both": 8, "nobody": -1}
    monkeypatch.setattr("aerobee.broker.observe.audit.unread.JUDGED_PER_ROW_MAX", 8)
    taken = await take(broker, with_matching_unread=True)
    assert {row["matching"] for row in taken.commits.values()} == {-1}  # 9 are too many
    del members


async def test_unread_messages_are_counted_by_what_clients_of_apache_ask_for(broker: Any) -> None:
    for tag, count in (("a", 3), ("b", 2), ("c", 4)):
        await broker.send_bodies("t", 0, *[b"x"] * count, tag=tag)
    for group in ("tags", "sql", "all", "mixed", "gone"):
        await commit(broker, group, 0, 1)
    clients = broker.clients
    expressions = CompiledExpressions()

    def register(group: str, client_id: str, wish: tuple[str, ...] | str | None) -> Client:
        client = clients.heard(client_id, "JAVA", "5.0.8", "ipv4:127.0.0.1:1")
        wanted = expressions.of(wish) if isinstance(wish, str) else wish
        clients.registered(
            client,
            Registration(v2.PUSH_CONSUMER, group=group, subscriptions={"t": wanted, "other": None}),
        )
        return cast(Client, client)

    register("tags", "1", ("a", "b"))
    register("sql", "2", "TAGS = 'c'")
    register("all", "3", ("a",))
    register("all", "4", None)
    register("mixed", "5", ("b",))
    member = await join(broker, "mixed", "c1", "TAGS = 'a'", is_sql=True)
    clients.left(register("gone", "6", ("a",)))
    taken = await take(broker, with_matching_unread=True)
    found = {group: row["matching"] for (group, _, _), row in taken.commits.items()}
    assert found == {"tags": 4, "sql": 4, "all": -1, "mixed": 4, "gone": -1}
    del member


async def test_a_queue_beyond_the_bound_is_not_counted(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.observe.audit.unread.COUNTED_PER_ROW_MAX", 5)
    await broker.send_bodies("t", 0, *[b"x"] * 10, tag="a")
    await commit(broker, "g", 0, 4)
    await commit(broker, "h", 0, 5)
    members = [await join(broker, "g", "c1", "a"), await join(broker, "h", "c1", "a")]
    taken = await take(broker, with_matching_unread=True)
    assert taken.commits["g", "t", 0]["matching"] == -1
    assert taken.commits["h", "t", 0]["matching"] == 5
    del members


async def test_no_commit_of_a_reading_is_newer_than_its_ends(start_broker: Any) -> None:
    """While messages are sent and their ends are committed at once, in many queues."""
    count = 64
    topics = {"t": TopicConfig(name="t", read_queue_count=count, write_queue_count=count)}
    broker = await start_broker(topics=topics)
    stop = asyncio.Event()

    async def consume(first: int) -> None:
        offset = 0
        while not stop.is_set():
            offset += 1
            for queue_id in range(first, count, 4):
                await broker.send_bodies("t", queue_id, b"x")
                await commit(broker, "g", queue_id, offset)

    async with asyncio.TaskGroup() as tasks:
        for first in range(4):
            tasks.create_task(consume(first))
        for _ in range(12):
            taken = await take(broker, with_first_unread=True)
            for (_, topic, queue_id), row in taken.commits.items():
                assert row["offset"] <= taken.queues[topic, queue_id][1]
                assert row["committed_at_ms"] <= taken.broker.commits_read_at_ms
        stop.set()


async def test_a_topic_that_is_gone_keeps_its_commits_in_sight(
    start_broker: Any, tmp_path: Path
) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"a")
    await commit(broker, "g", 0, 1)
    await broker.stop()
    broker = await start_broker(topics={"u": TopicConfig(name="u")})
    taken = await take(broker)
    assert "t" not in taken.topics
    assert taken.commits["g", "t", 0]["offset"] == 1
    assert taken.queues["t", 0][:2] == (0, 1)


# ---------------------------------------------------------------------- checksums


async def checksums(broker: Any, **request: Any) -> AsyncIterator[audit_pb2.LogChecksum]:
    stub = audit_pb2_grpc.AuditServiceStub(broker.channel)
    async for answer in stub.ChecksumLog(audit_pb2.ChecksumLogRequest(**request)):
        yield answer


async def test_checksums_are_those_of_the_files_on_a_grid(broker: Any, tmp_path: Path) -> None:
    for _ in range(24):
        ack = await broker.send_bodies("t", 0, bytes(700_000))
        assert ack.code == common_pb2.OK
    answers = [each async for each in checksums(broker, begin=0, end=-1, range_bytes=4 * MIB)]
    end = answers[-1].end
    assert [(each.begin, each.end) for each in answers] == [
        (begin, min(end, begin + 4 * MIB)) for begin in range(0, end, 4 * MIB)
    ]
    assert len(answers) == 5
    segments = sorted((tmp_path / "store" / "commitlog").glob("0*"))
    log = b"".join(segment.read_bytes() for segment in segments)
    # 22 of these records fill the first segment, up to the head of a blank one.
    filling = log.index(struct.pack(">i", MAGIC_BLANK)) + 4
    assert 15 * MIB < filling < 16 * MIB
    for each in answers:
        counted = log[each.begin : min(each.end, filling)] if each.end <= 16 * MIB else None
        assert each.checksum == zlib.crc32(counted or log[each.begin : each.end])
        assert not each.HasField("fault")
    (part,) = [each async for each in checksums(broker, begin=5 * MIB, end=6 * MIB)]
    assert (part.begin, part.end) == (5 * MIB, 6 * MIB)
    assert part.checksum == zlib.crc32(log[5 * MIB : 6 * MIB])


async def test_what_fills_a_segment_has_no_checksum(broker: Any, tmp_path: Path) -> None:
    for _ in range(24):
        await broker.send_bodies("t", 0, bytes(700_000))
    before = [each async for each in checksums(broker, end=16 * MIB, range_bytes=4 * MIB)]
    segment = min((tmp_path / "store" / "commitlog").glob("0*"))
    with segment.open("r+b") as file:
        file.seek(16 * MIB - 1_000)
        file.write(b"of an earlier life" * 10)
    assert [each async for each in checksums(broker, end=16 * MIB, range_bytes=4 * MIB)] == before
    with segment.open("r+b") as file:
        file.seek(12 * MIB + 1_000)
        file.write(b"damage")
    after = [each async for each in checksums(broker, end=16 * MIB, range_bytes=4 * MIB)]
    assert [new == old for new, old in zip(after, before, strict=True)] == [
        True,
        True,
        True,
        False,
    ]


async def test_ranges_that_are_too_small_are_refused(broker: Any) -> None:
    await broker.send_bodies("t", 0, b"a")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        [each async for each in checksums(broker, end=-1, range_bytes=1)]
    assert "at least" in str(error_from_rpc(refused.value, "broker"))


VERY_WIDE = {"t": TopicConfig(name="t", read_queue_count=400_000)}
"""A reading of it is more than a transport takes from a server whose client does not read."""


async def half_taken(broker: Any) -> Any:
    """A reading of which its client has the first part, and takes no other."""
    held = audit_pb2_grpc.AuditServiceStub(broker.channel).Snapshot(audit_pb2.SnapshotRequest())
    assert (await held.read()).HasField("broker")
    return held


async def is_taken(broker: Any) -> bool:
    """Whether the broker gives a small reading; otherwise it said that it has too many."""
    try:
        return bool((await take(broker, topics=["none"])).row_counts)
    except grpc.aio.AioRpcError as refused:
        if not isinstance(error_from_rpc(refused, "broker"), Busy):
            raise
        return False


async def test_more_readings_than_a_broker_holds_are_refused(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.observe.audit.snapshots.READINGS_MAX", 1)
    monkeypatch.setattr("aerobee.broker.observe.audit.snapshots.UNTAKEN_S_MAX", 3_600.0)
    held = await half_taken(broker := await start_broker(topics=VERY_WIDE))
    assert not await is_taken(broker)
    held.cancel()
    await until(lambda: is_taken(broker), "a reading after one that was given up")


async def test_a_reading_that_its_client_does_not_take_gives_way_to_another(
    start_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.observe.audit.snapshots.READINGS_MAX", 1)
    monkeypatch.setattr("aerobee.broker.observe.audit.snapshots.UNTAKEN_S_MAX", 0.2)
    held = await half_taken(broker := await start_broker(topics=VERY_WIDE))
    await until(lambda: is_taken(broker), "a reading in place of one that is not taken")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        _ = [part async for part in _rest_of(held)]
    assert isinstance(error_from_rpc(ended.value, "broker"), DeadlineExceeded)


async def _rest_of(call: Any) -> AsyncIterator[audit_pb2.SnapshotPart]:
    while (part := await call.read()) is not grpc.aio.EOF:
        yield part
