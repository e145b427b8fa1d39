"""Messages that wait outlive whoever keeps them: each comes once, and not before its time, when
brokers are killed and masters change while messages are due."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import PULL, SEND_STREAM
from aerobee.runtime import errors
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch, iterate_records
from aerobee.store.format.record_view import Record
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.etcd import running_etcd
from tests.support.real_brokers import BrokerProcess
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
SEGMENT = 1 << 20
DELAYS_MS = (200, 3_000)
SENT_AT_ONCE = 100


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Sender:
    """Sends messages that are due at times of its own choice, and remembers those acknowledged."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._channels = Channels()
        self._sent = 0
        self.due_ms: dict[bytes, int] = {}
        """Of each acknowledged message, by its body; of a level: the earliest that it can be."""

    async def send(self, address: str) -> None:
        """A batch for times, and one for a delay level. Raises AerobeeError if the stream fails:
        what was sent may be stored or not."""
        now = now_ms()
        times = [now + self._chance.randint(*DELAYS_MS) for _ in range(SENT_AT_ONCE)]
        await self._send(address, times, {"TIMER_DELIVER_MS": ""})
        await self._send(address, [now + 1_000] * 10, {"DELAY": "1"})

    async def send_in(self, address: str, delay_ms: int) -> None:
        """As many for one time. As `send`."""
        times = [now_ms() + delay_ms] * SENT_AT_ONCE
        await self._send(address, times, {"TIMER_DELIVER_MS": ""})

    async def _send(self, address: str, due_ms: Sequence[int], asks: dict[str, str]) -> None:
        bodies = []
        for _ in due_ms:
            self._sent += 1
            bodies.append(b"%d" % self._sent)
        records, sizes = encode_batch(
            topic=b"t",
            bodies=bodies,
            properties=[
                encode_properties(
                    {name: value or str(at) for name, value in asks.items()}
                    | {"UNIQ_KEY": f"{int(body):032X}"}
                )
                for body, at in zip(bodies, due_ms, strict=True)
            ],
            born_timestamp_ms=now_ms(),
            born_host=BORN_HOST,
        )
        batch = broker_pb2.RecordBatch(
            sequence=1,
            topic="t",
            queue_id=0,
            records=records,
            record_sizes=sizes,
            timeout_ms=3_000,
        )
        stream = self._channels.open_stream(address, SEND_STREAM)
        try:
            await stream.write(broker_pb2.SendFrame(batches=[batch]))
            answer = await stream.read()
        finally:
            stream.cancel()
        if answer is not None and answer.acks[0].code == common_pb2.OK:
            self.due_ms.update(zip(bodies, due_ms, strict=True))

    async def pulled(self, address: str) -> list[Record]:
        """All messages of queue 0 as a consumer sees them."""
        found: list[Record] = []
        while True:
            request = broker_pb2.PullRequest(
                topic="t", queue_id=0, offset=len(found), max_bytes=SEGMENT, max_messages=1_000
            )
            answer = await self._channels.call(address, PULL, request)
            if answer.code != common_pb2.OK:
                return found
            found += iterate_records(answer.records)

    async def until_all_have_come(self, address: str) -> None:
        async def have_come() -> bool:
            with suppress(errors.AerobeeError):
                bodies = {bytes(record.body) for record in await self.pulled(address)}
                return self.due_ms.keys() <= bodies
            return False

        await until(have_come, "every acknowledged message comes")
        counts = Counter(bytes(record.body) for record in await self.pulled(address))
        assert max(counts.values()) == 1, "none comes twice"
        for record in await self.pulled(address):
            # What was not acknowledged may have come as well.
            due_ms = self.due_ms.get(bytes(record.body), 0)
            assert record.store_timestamp_ms >= due_ms, "none comes early"

    async def close(self) -> None:
        await self._channels.close()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
async def test_kill_minus_9_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    sender, chance = Sender(seed), random.Random(seed)
    options = {"segment_bytes": SEGMENT, "checkpoint_interval_ms": 100}
    broker = BrokerProcess("broker-a", tmp_path / "store", {"t": 1}, options)
    try:
        for _ in range(6):
            await broker.start()
            for _ in range(chance.randint(1, 6)):
                await sender.send(broker.address)
                await asyncio.sleep(chance.random() * 0.3)
            await broker.stop()
        await broker.start()
        assert len(sender.due_ms) >= 6 * SENT_AT_ONCE
        await sender.until_all_have_come(broker.address)
    finally:
        await sender.close()
        await broker.stop()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def send_some(group: ReplicaGroup, sender: Sender, times: int) -> int:
    """To the master, whoever that is; its id."""
    master = await group.master()
    for _ in range(times):
        with suppress(errors.AerobeeError):
            await sender.send(group.replicas[master].address)
        await asyncio.sleep(0.1)
    return master


@pytest.mark.thorough
async def test_a_new_master_delivers_what_the_last_one_had_waiting(
    tmp_path: Path, etcd: str
) -> None:
    sender = Sender(7)
    async with replica_group(tmp_path, etcd, (0, 1), segment_bytes=SEGMENT) as group:
        await group.in_sync(0, 1)
        await group.create_topic("t")
        await group.send_until_stored("t", b"first")
        for _ in range(3):
            master = await send_some(group, sender, 5)
            await group.in_sync(0, 1)
            await group.replicas[master].kill()
            other = await group.master(not_id=master)
            await send_some(group, sender, 3)
            await group.replicas[master].start()
            await group.in_sync(0, 1)
            assert other != master
        master = await send_some(group, sender, 3)
        await group.hand_over(master)
        heir = await group.master(not_id=master)
        assert len(sender.due_ms) > 10 * SENT_AT_ONCE
        await sender.until_all_have_come(group.replicas[heir].address)
        await group.logs_equal(0, 1)
    await sender.close()
