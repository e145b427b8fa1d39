"""Messages read from stores' files: Apache's golden stores and ours, in parts and damaged."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.batch_reader import BatchPlan
from aerobee.offset_audit.sources.messages.losses import MessagesLost
from aerobee.offset_audit.sources.messages.options import parse_options
from aerobee.offset_audit.sources.messages.store_place import StorePlace
from aerobee.offset_audit.sources.store.conditions import Conditions, Numbers
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import InvalidArgument, TopicNotFound
from aerobee.store.format.compression import CompressionKind, compress
from tests.offset_audit.stream_engine import Engine
from tests.support.plain_store import PlainStore
from tests.support.stores import SMALL, append, batch_of, flush, open_store

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CLEAN = ("clean-small", "retained", "ipv6-v2")
CRASHED = ("crashed", "crashed-torn")


def golden(name: str, folder: Path) -> tuple[Path, Any]:
    """An extracted store and its manifest."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder / name, json.loads((GOLDEN / f"{name}.json").read_text())


def place_of(root: Path | str, **options: Any) -> StorePlace:
    wanted = {"subscribePattern": ".*", **options}
    if "topic" in wanted or "assign" in wanted:
        del wanted["subscribePattern"]
    texts = {"path": str(root), **{name: str(value) for name, value in wanted.items()}}
    return StorePlace(parse_options(texts, is_streaming=False))


def read(
    root: Path | str, conditions: Conditions | None = None, **options: Any
) -> list[dict[str, Any]]:
    """As a batch does it, without Spark."""
    place = place_of(root, **options)
    plan = BatchPlan(place.options, conditions or Conditions())
    return [
        row
        for reading in plan.readings(place)
        for batch in reading.batches()
        for row in batch.to_pylist()
    ]


def key(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def keys(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [key(row) for row in rows]


def as_listed(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "queueId": row["queue_id"],
        "queueOffset": row["queue_offset"],
        "physicalOffset": row["physical_offset"],
        "flag": row["flag"],
        "sysFlag": row["sys_flag"],
        "bornTimestamp": row["born_ms"],
        "bornHost": row["born_host"],
        "storeTimestamp": row["store_ms"],
        "reconsumeTimes": row["reconsume_times"],
        "plainBodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "tags": row["tags"],
        "keys": " ".join(row["keys"]) if row["keys"] else None,
        "uniqKey": row["unique_key"],
        "properties": dict(row["properties"]),
    }


def expected_of(manifest: Any, topics: Sequence[str]) -> list[dict[str, Any]]:
    """What the manifest lists, in the form of `as_listed`."""
    found = []
    for topic in topics:
        for queue in manifest["topics"][topic].values():
            for message in queue["messages"]:
                plain = message.get("plainBodySha256", message["bodySha256"])
                one = {**message, "plainBodySha256": plain}
                one["keys"] = " ".join(word for word in (one["keys"] or "").split(" ") if word)
                one["keys"] = one["keys"] or None
                host, _, port = one["bornHost"].rpartition(":")
                one["bornHost"] = f"[{host.strip('[]')}]:{port}" if ":" in host else one["bornHost"]
                found.append(one)
    return found


# ---------------------------------------------------------------------------------- Apache's


@pytest.mark.parametrize("name", CLEAN)
def test_every_message_of_apaches_stores_is_read_as_its_manifest_says(
    name: str, tmp_path: Path
) -> None:
    root, manifest = golden(name, tmp_path)
    topics = sorted(manifest["topics"])
    rows = read(root, topic=",".join(topics), partitionBytes=65_536)
    found = sorted((as_listed(row) for row in rows), key=lambda one: _place(one))
    expected = sorted(expected_of(manifest, topics), key=lambda one: _place(one))
    assert len(found) == len(expected) > 100
    for one, other in zip(found, expected, strict=True):
        assert one == {name: other[name] for name in one}
    ids = {message["offsetMsgId"] for message in expected if message["uniqKey"] is None}
    assert ids == {row["message_id"] for row in rows if row["unique_key"] is None}


def _place(one: dict[str, Any]) -> tuple[str, int, int]:
    return one["topic"], one["queueId"], one["queueOffset"]


@pytest.mark.parametrize("name", CRASHED)
def test_of_a_crashed_store_what_its_queues_and_log_have_is_read(name: str, tmp_path: Path) -> None:
    root, manifest = golden(name, tmp_path)
    plain = PlainStore(root, int(manifest["config"]["mappedFileSizeCommitLog"]))
    known = {(one.topic, one.queue_id, one.queue_offset): one for one in plain.records}
    topics = sorted(path.name for path in (root / "consumequeue").iterdir())
    rows = read(root, topic=",".join(topics), failOnDataLoss=False)
    assert len(rows) > 100
    assert len(set(keys(rows))) == len(rows)
    for row in rows:
        record = known[key(row)]
        assert row["physical_offset"] == record.physical_offset
        assert row["body"] == (record.plain_body or record.body)


@pytest.mark.parametrize("name", CLEAN)
def test_bounds_and_offsets_by_time_are_those_that_apache_answers(
    name: str, tmp_path: Path
) -> None:
    root, manifest = golden(name, tmp_path)
    place = place_of(root, topic=",".join(manifest["topics"]), name="golden-a")
    bounds = place.bounds(0)
    asked = 0
    for topic, queues in manifest["topics"].items():
        for queue_id, said in queues.items():
            queue = MessageQueue(topic, "golden-a", int(queue_id))
            found = bounds[queue]
            assert found is not None
            assert (found.begin, found.end) == (said["minOffset"], said["maxOffset"])
            for answer in said["offsetByTime"]:
                offset = place.at_times({queue: answer["timestamp"]})[queue]
                times = [one["storeTimestamp"] for one in said["messages"]]
                late = [time for time in times if time < answer["timestamp"]]
                assert offset == said["minOffset"] + len(late)
                asked += 1
    assert asked > 100


# ---------------------------------------------------------------------------------- ours


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two topics, three queues, small segments and queue files; minutes pass while it is filled."""
    root = tmp_path / "broker-a"
    clock = ManualClock()
    opened = open_store(root, SMALL, clock)
    for n in range(60):
        append(opened, "orders", n % 2, b"order %d" % n * 5, tag=f"t{n % 3}")
        if n % 5 == 0:
            append(opened, "bills", 0, b"bill %d" % n)
        clock.advance_ms(60_000)
    flush(opened)
    opened.close()
    return root


ALL = [("orders", queue, offset) for queue in range(2) for offset in range(30)]
BILLS = [("bills", 0, offset) for offset in range(12)]


def test_all_is_read_once_however_it_is_divided(store: Path) -> None:
    whole = sorted(keys(read(store)))
    assert whole == sorted(ALL + BILLS)
    for options in (
        {"minPartitions": 7},
        {"maxRecordsPerPartition": 3},
        {"minPartitions": 1000},
    ):
        place = place_of(store, **options)
        readings = BatchPlan(place.options, Conditions()).readings(place)
        assert len(readings) >= 7
        rows = [row for one in readings for batch in one.batches() for row in batch.to_pylist()]
        assert sorted(keys(rows)) == whole


def test_what_options_name_is_read_and_nothing_else(store: Path) -> None:
    assert sorted(keys(read(store, topic="bills"))) == BILLS
    assert sorted(keys(read(store, assign='{"orders": {"broker-a": [1]}}'))) == ALL[30:]
    some = read(
        store,
        topic="orders",
        startingOffsets='{"orders": {"broker-a": {"0": 3, "1": -2}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 5, "1": 1}}}',
    )
    assert sorted(keys(some)) == [("orders", 0, 3), ("orders", 0, 4), ("orders", 1, 0)]
    with pytest.raises(TopicNotFound, match="'nothing' has no queues"):
        read(store, topic="orders,nothing")
    with pytest.raises(InvalidArgument, match="lacks orders@broker-a:1"):
        read(store, topic="orders", startingOffsets='{"orders": {"broker-a": {"0": 3}}}')


def test_times_choose_messages_by_when_they_were_stored(store: Path) -> None:
    rows = read(store, topic="orders")
    times = sorted(row["store_ms"] for row in rows)
    between = read(store, topic="orders", startingTimestamp=times[10], endingTimestamp=times[50])
    assert sorted(row["store_ms"] for row in between) == times[10:50]
    with pytest.raises(InvalidArgument, match="later than the last message"):
        read(store, topic="orders", startingTimestamp=times[-1] + 1)
    assert not read(
        store,
        topic="orders",
        startingTimestamp=times[-1] + 1,
        startingOffsetsByTimestampStrategy="latest",
    )


def test_filters_narrow_what_is_read(store: Path) -> None:
    times = sorted(row["store_ms"] for row in read(store, topic="orders"))
    conditions = (
        Conditions()
        .with_texts("topic", ["orders"])
        .with_numbers("queue_id", Numbers(among=frozenset({1})))
        .with_numbers("queue_offset", Numbers(low=5))
        .with_numbers("store_ms", Numbers(times[30], times[39]))
    )
    rows = read(store, conditions)
    assert {row["queue_id"] for row in rows} == {1}
    assert [row["store_ms"] for row in rows] == times[31:40:2]
    place = place_of(store)
    conditions = Conditions().with_texts("topic", ["bills"])
    plan = BatchPlan(place.options, conditions.with_numbers("queue_offset", Numbers(high=1)))
    (reading,) = plan.readings(place)
    assert [(one.begin, one.end) for one in reading.slices] == [(0, 2)]  # type: ignore[attr-defined]


def test_several_stores_are_several_brokers(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "broker-b")
    rows = read(f"{tmp_path}/broker-*", topic="bills")
    assert sorted((row["broker_name"], row["queue_offset"]) for row in rows) == [
        (name, offset) for name in ("broker-a", "broker-b") for offset in range(12)
    ]
    with pytest.raises(InvalidArgument, match="both of broker 'one'"):
        read(f"{tmp_path}/broker-*", topic="bills", name="one")


def test_compressed_bodies_are_given_as_they_were_sent(tmp_path: Path) -> None:
    bodies = [b"%d" % n * 400 for n in range(8)]
    opened = open_store(tmp_path / "b")
    for n, body in enumerate(bodies):
        kind = list(CompressionKind)[n % 3]
        if n % 4:
            batch = batch_of("orders", compress(body, kind), sys_flag=kind.sys_flag)
        else:
            batch = batch_of("orders", body)
        opened.append(batch, queue_id=0)
        opened.confirm(opened.appended_end)
    flush(opened)
    opened.close()
    assert [row["body"] for row in read(tmp_path / "b")] == bodies


async def test_a_store_that_grows_is_streamed(tmp_path: Path) -> None:
    engine = Engine("", path=tmp_path / "b", startingOffsets="earliest", maxOffsetsPerTrigger=25)
    seen: list[str] = []
    for first in (0, 1, 40):
        opened = open_store(tmp_path / "b")
        for n in range(first, first + 40):
            append(opened, "orders", n % 3, b"%d" % n * 40)
        flush(opened)
        opened.close()
        while rows := await engine.step():
            assert len(rows) <= 25
            seen += [row["body"].decode() for row in rows]
        engine.restart()
    sent = [*range(40), *range(1, 41), *range(40, 80)]
    assert sorted(seen) == sorted(str(n) * 40 for n in sent)


# ---------------------------------------------------------------------------------- damaged


def test_a_flipped_body_fails_the_read_and_names_the_message(store: Path) -> None:
    row = next(row for row in read(store) if key(row) == ("orders", 1, 7))
    _flip(store, row["physical_offset"] + 90)
    with pytest.raises(
        MessagesLost, match=r"^1 message .*orders@broker-a:1 offsets \[7, 8\) \(damaged"
    ):
        read(store)
    assert sorted(keys(read(store, checkBodies=False))) == sorted(ALL + BILLS)


def test_without_failing_all_but_the_damaged_is_read_and_the_count_is_logged(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = next(row for row in read(store) if key(row) == ("orders", 1, 7))
    _flip(store, row["physical_offset"] + 3)
    with caplog.at_level(logging.WARNING):
        rows = read(store, failOnDataLoss=False)
    assert sorted(keys(rows)) == sorted({*ALL, *BILLS} - {("orders", 1, 7)})
    assert "going on without 1 messages: orders@broker-a:1 offsets [7, 8) (damaged)" in caplog.text


def test_a_segment_that_is_gone_is_told_by_its_offsets(store: Path) -> None:
    before = read(store)
    segments = sorted(path for path in (store / "commitlog").iterdir() if path.stat().st_size)
    base, end = int(segments[1].name), int(segments[2].name)
    segments[1].unlink()
    gone = {key(row) for row in before if base <= row["physical_offset"] < end}
    with pytest.raises(MessagesLost, match=f"^{len(gone)} messages that were to be read are gone"):
        read(store, partitionBytes=1 << 30)
    rows = read(store, failOnDataLoss=False)
    assert sorted(keys(rows)) == sorted({*ALL, *BILLS} - gone)


def test_what_retention_removed_is_no_loss_unless_it_was_asked_for(store: Path) -> None:
    before = read(store, topic="orders")
    segments = sorted(path for path in (store / "commitlog").iterdir() if path.stat().st_size)
    end = int(segments[1].name)
    segments[0].unlink()
    left = [row for row in before if row["physical_offset"] >= end]
    assert 0 < len(left) < len(before)
    assert sorted(keys(read(store, topic="orders"))) == sorted(keys(left))
    first = '{"orders": {"broker-a": {"0": 0, "1": 0}}}'
    with pytest.raises(MessagesLost, match="removed by retention"):
        read(store, topic="orders", startingOffsets=first)
    rest = read(store, topic="orders", startingOffsets=first, failOnDataLoss=False)
    assert sorted(keys(rest)) == sorted(keys(left))


def test_an_entry_that_was_zeroed_hides_only_its_own_message(store: Path) -> None:
    (path,) = [
        one
        for one in (store / "consumequeue" / "orders" / "0").iterdir()
        if int(one.name) <= 25 * 20 < int(one.name) + one.stat().st_size
    ]
    with path.open("r+b") as file:
        file.seek(25 * 20 - int(path.name))
        file.write(bytes(20))
    with pytest.raises(MessagesLost, match=r"orders@broker-a:0 offsets \[25, 26\)"):
        read(store)
    for parts in (1, 2, 3, 7, 20, 1000):
        rows = read(store, failOnDataLoss=False, minPartitions=parts)
        assert sorted(keys(rows)) == sorted({*ALL, *BILLS} - {("orders", 0, 25)})


@pytest.mark.parametrize("position", [1 << 55, (1 << 63) - 1])
def test_an_entry_that_leads_far_behind_the_log_does_not_stretch_the_plan(
    store: Path, position: int
) -> None:
    whole = keys(read(store))
    place = place_of(store, topic="orders", partitionBytes=1 << 20, failOnDataLoss=False)
    plan = BatchPlan(place.options, Conditions())
    before = len(list(plan.readings(place)))
    last = max(row for row in whole if row[0] == "orders")
    file = max(Path(store, "consumequeue", "orders", str(last[1])).iterdir())
    with file.open("r+b") as opened:
        opened.seek(last[2] * 20 - int(file.name))
        opened.write(position.to_bytes(8, "big"))
    readings = list(plan.readings(place))
    assert len(readings) == before
    found = [row for one in readings for batch in one.batches() for row in batch.to_pylist()]
    assert sorted(keys(found)) == sorted(key for key in whole if key[0] == "orders" and key != last)


def _flip(store: Path, position: int) -> None:
    segment = max(
        (path for path in (store / "commitlog").iterdir() if int(path.name) <= position),
        key=lambda path: int(path.name),
    )
    with segment.open("r+b") as file:
        file.seek(position - int(segment.name))
        byte = file.read(1)[0]
        file.seek(position - int(segment.name))
        file.write(bytes([byte ^ 4]))
