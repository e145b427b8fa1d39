"""A broker process takes a folder of Apache's over: real gRPC, clean stops and kill -9."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import RESET_OFFSETS, SEND_STREAM
from aerobee.store.engine.config import consume_queue_entries
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import read_with_backup, replace_atomically
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.json_config import parse_object
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.store.format.transaction_records import ASIDE_TOPIC
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.apache_start import apache_problems
from tests.support.plain_folder import folder_problems
from tests.support.plain_store import PlainStore
from tests.support.real_brokers import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
NEW_TOPIC = "Brand-New"
QUEUES = (("OrderEvents", 0), ("AuditTrail", 2), (NEW_TOPIC, 1))


class Takeover:
    """One folder, and the process that serves it."""

    def __init__(self, golden: Any) -> None:
        self.golden = golden
        self.root: Path = golden.root
        self._channels = Channels()
        self._sent = 0
        options = {
            "segment_bytes": golden.segment_bytes,
            "consume_queue_entries_per_file": consume_queue_entries(
                int(golden.config["mappedFileSizeConsumeQueue"])
            ),
            "index_slots_max": int(golden.config["maxHashSlotNum"]),
            "index_entries_max": int(golden.config["maxIndexNum"]),
            "checkpoint_interval_ms": 50,
        }
        self.broker = BrokerProcess("golden-a", self.root, {}, options)

    def add_topic(self) -> None:
        disk = RealDisk(self.root)
        table = read_with_backup(disk, TOPICS_PATH, TopicTable.load).value
        assert table is not None
        table.put(TopicConfig(name=NEW_TOPIC, read_queue_count=2, write_queue_count=2))
        replace_atomically(disk, TOPICS_PATH, table.snapshot_bytes(1))

    async def send(self, batches: int) -> list[tuple[str, int, int]]:
        """Acknowledged messages as (topic, queue id, queue offset)."""
        sent = []
        stream = self._channels.open_stream(self.broker.address, SEND_STREAM)
        for number in range(batches):
            topic, queue_id = QUEUES[number % len(QUEUES)]
            ack = await self._send_batch(stream, topic, queue_id)
            sent += [(topic, queue_id, ack.base_queue_offset + n) for n in range(5)]
        stream.cancel()
        return sent

    async def _send_batch(self, stream: Any, topic: str, queue_id: int) -> broker_pb2.SendAck:
        properties = []
        for _ in range(5):
            self._sent += 1
            texts = {
                "TAGS": "订单",
                "KEYS": f"new-{self._sent} hot",
                "UNIQ_KEY": f"{self._sent:032X}",
            }
            properties.append(encode_properties(texts))
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=[bytes([number]) * (1 + 700 * number) for number in range(5)],
            properties=properties,
            born_timestamp_ms=1_700_000_000_000,
            born_host=BORN_HOST,
        )
        batch = broker_pb2.RecordBatch(
            sequence=self._sent, topic=topic, queue_id=queue_id, records=records, record_sizes=sizes
        )
        await stream.write(broker_pb2.SendFrame(batches=[batch]))
        answer = await stream.read()
        assert answer is not None
        assert answer.acks[0].code == common_pb2.OK, answer.acks[0]
        ack: broker_pb2.SendAck = answer.acks[0]
        return ack

    async def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        await self._channels.call(
            self.broker.address,
            RESET_OFFSETS,
            broker_pb2.ResetOffsetsRequest(
                group=group,
                offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)],
            ),
        )

    def lost(self, sent: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        log = PlainStore(self.root, self.golden.segment_bytes)
        there = {(r.topic, r.queue_id, r.queue_offset) for r in log.records if r.in_queue}
        return [message for message in sent if message not in there]

    def problems(self, *, closed: bool) -> list[str]:
        return [
            *folder_problems(self.root, self.golden.sizes, closed=closed),
            *apache_problems(self.root, self.golden.sizes),
        ]

    async def stop(self) -> None:
        await self._channels.close()
        await self.broker.stop()


@pytest.fixture
async def takeover(golden: Any) -> AsyncIterator[Takeover]:
    running = Takeover(golden)
    yield running
    await running.stop()


@pytest.mark.thorough
async def test_a_broker_that_is_stopped_leaves_a_folder_that_apache_would_go_on_with(
    takeover: Takeover,
) -> None:
    takeover.add_topic()
    for _ in range(2):
        await takeover.broker.start()
        sent = await takeover.send(60)
        await takeover.reset("orders-all", "OrderEvents", 0, 3)
        await takeover.broker.end()
        assert takeover.problems(closed=True) == []
        assert takeover.lost(sent) == []
    config = takeover.root / "config"
    offsets: Any = parse_object((config / "consumerOffset.json").read_bytes())["offsetTable"]
    assert offsets["OrderEvents@orders-all"]["0"] == 3
    before = takeover.golden.manifest["consumerOffsets"]
    assert before.items() <= {**offsets, **before}.items()
    assert {key for key in before if key not in offsets} == set()


@pytest.mark.thorough
async def test_a_broker_that_is_killed_leaves_a_folder_that_loses_nothing(
    takeover: Takeover,
) -> None:
    takeover.add_topic()
    sent = []
    for _ in range(3):
        await takeover.broker.start()
        sent += await takeover.send(25)
        await takeover.broker.stop()
        found = takeover.problems(closed=False)
        # Killed between a write of index files and its checkpoint: Apache, too, forgets keys then.
        # Killed while a file was replaced: the next start removes the new one.
        # Killed while an index file was written: the next start writes its newest keys again.
        accidents = ("would be lost", ".tmp was left behind", " leads to ")
        assert [line for line in found if not any(word in line for word in accidents)] == []
        assert takeover.lost(sent) == []
    await takeover.broker.start()
    await takeover.broker.end()
    assert takeover.problems(closed=True) == []
    assert takeover.lost(sent) == []


async def test_members_that_we_do_not_know_survive_our_writing(
    extract_golden: Callable[[str], Any],
) -> None:
    golden = extract_golden("clean-small")
    takeover = Takeover(golden)
    config = golden.root / "config"
    shutil.copytree(config, golden.root.with_name("before"))
    topics: Any = parse_object((config / "topics.json").read_bytes())
    takeover.add_topic()
    await takeover.broker.start()
    await takeover.reset("orders-all", "OrderEvents", 0, 3)
    await takeover.broker.end()
    await takeover.stop()
    now: Any = parse_object((config / "topics.json").read_bytes())
    assert now["topicConfigTable"].pop(NEW_TOPIC)["perm"] == 6
    for subject in ("OFFSET", "TIMER", "POP", "TRANSACTION", "SCHEDULE"):
        assert now["topicConfigTable"].pop(f"AEROBEE_{subject}_JOURNAL")["perm"] == 4
    former = topics["topicConfigTable"]
    added = [n for n in (SCHEDULE_TOPIC, TIMER_TOPIC, ASIDE_TOPIC) if n not in former]
    assert [now["topicConfigTable"].pop(name)["perm"] for name in added] == [4] * len(added)
    assert now["topicConfigTable"] == former
    # Written twice: with the new topic, and with the journals and where messages wait.
    assert now["dataVersion"]["counter"] == topics["dataVersion"]["counter"] + 2
    for name in ("subscriptionGroup.json", "timermetrics"):
        before = (golden.root.with_name("before") / name).read_bytes()
        assert (config / name).read_bytes() == before, name
