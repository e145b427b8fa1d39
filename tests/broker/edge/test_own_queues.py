"""Messages of Apache's clients that come in one turn of the loop are stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from aerobee.broker.edge.rocketmq.own_queues import OwnQueues
from aerobee.broker.sending.ingest import Receipt
from aerobee.broker.sending.message_encoder import PlainBatch
from aerobee.rocketmq_api.ports import QueueRecords
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import NotWritable


class Ingest:
    """Notes what is taken together."""

    def __init__(self) -> None:
        self.taken: list[list[bytes]] = []
        self.defect: Exception | None = None

    def accept(self, batches: Sequence[PlainBatch]) -> list[Receipt]:
        if self.defect is not None:
            raise self.defect
        self.taken.append([batch.records for batch in batches])
        return [
            Receipt(sequence=0, error=NotWritable("full"))
            if batch.records == b"refused"
            else Receipt(sequence=0, base_queue_offset=number)
            for number, batch in enumerate(batches, start=10 * len(self.taken))
        ]


class Scene:
    def __init__(self) -> None:
        self.ingest = Ingest()
        nothing: Any = None
        schedule: Any = Schedule()
        ingest: Any = self.ingest
        self.queues = OwnQueues(
            "broker-a",
            ingest,
            nothing,
            schedule,
            ManualClock(),
            is_master=lambda: True,
            store_host_ipv6=False,
        )

    def call(self, *records: bytes) -> asyncio.Task[list[int]]:
        async def send() -> list[int]:
            parts = [QueueRecords(0, [record]) for record in records]
            sent = await self.queues.send("t", parts, 3_000)
            return [-1 if each.error is not None else each.queue_offset for each in sent]

        return asyncio.create_task(send())


class Schedule:
    async def recall(self) -> None: ...


async def test_each_call_of_a_turn_gets_its_own_answers() -> None:
    scene = Scene()
    calls = [scene.call(b"a"), scene.call(b"b", b"refused", b"c"), scene.call(b"d")]
    assert await asyncio.gather(*calls) == [[10], [11, -1, 13], [14]]
    assert scene.ingest.taken == [[b"a", b"b", b"refused", b"c", b"d"]]
    assert await scene.call(b"e") == [20]


async def test_a_call_that_has_gone_before_the_turn_is_over_sends_nothing() -> None:
    scene = Scene()
    gone, stays = scene.call(b"gone"), scene.call(b"stays")
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == [10]
    assert scene.ingest.taken == [[b"stays"]]
    assert gone.cancelled()


async def test_a_defect_is_told_to_every_call_of_the_turn_and_to_none_after() -> None:
    scene = Scene()
    scene.ingest.defect = RuntimeError("a defect")
    for call in (scene.call(b"a"), scene.call(b"b")):
        with pytest.raises(RuntimeError, match="a defect"):
            await call
    scene.ingest.defect = None
    assert await scene.call(b"c") == [10]
