"""What a stream's receipts say, and how many of them a stream may have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aerobee.broker.edge.own.send_service import ACKS_PER_FRAME_MAX, RECEIPTS_MAX, PendingReceipts
from aerobee.broker.sending.durability import Late
from aerobee.broker.sending.ingest import Receipt
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import TopicNotFound


class HandDurability:
    """The test says how far the log is safe."""

    def __init__(self) -> None:
        self.acknowledged = EndWaiters(0, on_deadline_set=lambda deadline_s: None)

    def why_late(self, end: int) -> Late:
        return Late.REPLICAS


def pending_receipts(durability: HandDurability) -> PendingReceipts:
    """Of a client that takes nothing at once."""
    return receipts_of(durability, lambda receipts: False)


def receipts_of(
    durability: HandDurability, write_at_once: Callable[[Sequence[Receipt]], bool]
) -> PendingReceipts:
    return PendingReceipts(
        durability, ManualClock(), lambda in_time, elapsed_s: None, write_at_once
    )


async def test_all_that_one_flush_makes_true_is_written_at_once_in_one_frame() -> None:
    durability = HandDurability()
    written: list[list[int]] = []

    def write(receipts: Sequence[Receipt]) -> bool:
        written.append([receipt.sequence for receipt in receipts])
        return True

    pending = receipts_of(durability, write)
    for n in range(1, 65):
        pending.add([Receipt(n, wait_end=100 * n)], 100, 0.0)
    assert written == []
    durability.acknowledged.reached(6_350)
    assert written == [list(range(1, 64))]
    durability.acknowledged.reached(6_400)
    assert written[1:] == [[64]]
    pending.add([Receipt(65, TopicNotFound("t"))], 100, 0.0)
    assert written[2:] == [[65]]
    pending.finish()
    assert await pending.take() == []


async def test_what_a_client_does_not_take_at_once_is_given_later_once_and_in_order() -> None:
    durability = HandDurability()
    takes = False
    written: list[int] = []

    def write(receipts: Sequence[Receipt]) -> bool:
        written.extend(receipt.sequence for receipt in receipts if takes)
        return takes

    pending = receipts_of(durability, write)
    for n in (1, 2, 3):
        pending.add([Receipt(n, wait_end=n)], 100, 0.0)
    durability.acknowledged.reached(2)
    assert [receipt.sequence for receipt in await pending.take()] == [1, 2]
    takes = True
    pending.finish()
    durability.acknowledged.reached(3)
    assert written == [3]
    assert await pending.take() == []


async def test_at_the_deadline_a_frame_s_safe_batches_are_not_called_late() -> None:
    durability = HandDurability()
    pending = pending_receipts(durability)
    frame = [Receipt(n, wait_end=100 * n, timeout_ms=1_000) for n in (1, 2, 3)]
    pending.add(frame, 300, 0.0)
    durability.acknowledged.reached(200)
    durability.acknowledged.on_time(1.0)
    told = {receipt.sequence: receipt.late for receipt in await pending.take()}
    assert told == {1: None, 2: None, 3: Late.REPLICAS}


async def test_a_stream_is_not_read_on_while_its_receipts_are_not_taken() -> None:
    pending = pending_receipts(HandDurability())
    for _ in range(RECEIPTS_MAX // 1_000 + 1):
        pending.add([Receipt(n, TopicNotFound("t")) for n in range(1_000)], 1, 0.0)
    room = asyncio.ensure_future(pending.wait_room())
    await asyncio.sleep(0)
    assert not room.done()
    assert len(await pending.take()) == ACKS_PER_FRAME_MAX
    await room
