"""One running `send_batch`: the batches it is divided into, and their outcomes."""

from __future__ import annotations

import asyncio
import copy
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter

from aerobee.client_core.message import Message
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.accumulator import RECORD_OVERHEAD_BYTES, Batch, with_unique_keys
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.delivery import Delivery
from aerobee.producer_client.receipt import PartlySent, Receipt, Receipts, StoredBatch
from aerobee.producer_client.selector import by_sharding_key
from aerobee.producer_client.targets import Targets
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.store.format.message_id import UniqueIdGenerator

# Reads fields of many messages without a Python frame for each.
_TOPIC = attrgetter("topic")
_BODY = attrgetter("body")
_SHARDING_KEY = attrgetter("sharding_key")
_PROPERTIES = attrgetter("encoded_properties")
_FLAG = attrgetter("flag")
_SCHEDULE = attrgetter("schedule")

SLICE_MESSAGES_MAX = 4_096
"""How many messages are prepared at once before others may run."""


def split_sizes(sizes: Sequence[int], *, bytes_max: int) -> list[int]:
    """Ends of the pieces into which `sizes` is cut: about equally long, none too long unless it is
    a single one.

    >>> split_sizes([40, 40, 40, 200, 10], bytes_max=100)
    [2, 3, 4, 5]
    >>> split_sizes([1] * 12, bytes_max=10)
    [6, 12]
    """
    sums = list(accumulate(sizes))
    ends: list[int] = []
    start = 0
    used = 0
    while start < len(sizes):
        left = sums[-1] - used
        share = -(-left // max(1, -(-left // bytes_max)))
        end = min(bisect_left(sums, used + share, lo=start) + 1, len(sizes))
        if sums[end - 1] - used > bytes_max:
            end = max(end - 1, start + 1)
        ends.append(end)
        used = sums[end - 1]
        start = end
    return ends


class SendBlock:
    """Collects the outcomes of the batches into which one `send_batch` was divided."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done = done
        self._parts: dict[Batch, StoredBatch | None] = {}
        self._positions: dict[Batch, Sequence[int]] = {}
        self._waiting = 1
        self.message_count = 0
        """Of all its batches."""
        self._failure: errors.AerobeeError | None = None

    def add(self, batch: Batch, positions: Sequence[int]) -> None:
        """A batch with the messages at `positions` of the call."""
        batch.block = self
        self._parts[batch] = None
        self._positions[batch] = positions
        self.message_count += len(positions)
        self._waiting += 1

    def complete(self) -> None:
        """All batches have been added."""
        self._count_down()

    def fail(self, error: errors.AerobeeError) -> None:
        """Messages that did not get into a batch."""
        self._failure = self._failure or error

    def split(self, batch: Batch, count: int, rest: Batch) -> None:
        """The batch has kept its first `count` messages; the others are in `rest`."""
        rest.block = self
        positions = self._positions[batch]
        self._positions[batch] = positions[:count]
        self._positions[rest] = positions[count:]
        parts, self._parts = self._parts, {}
        for part, stored in parts.items():
            self._parts[part] = stored
            if part is batch:
                # Receipts are in the order of the messages.
                self._parts[rest] = None
        self._waiting += 1

    def on_stored(self, batch: Batch, stored: StoredBatch) -> None:
        self._parts[batch] = stored
        self._count_down()

    def on_failed(self, batch: Batch, error: errors.AerobeeError) -> None:
        self.fail(error)
        self._count_down()

    def result(self, count: int) -> Receipts:
        """The receipts of all `count` messages.

        Raises:
            PartlySent: some were stored. Otherwise the first failure.
        """
        stored = [(batch, part) for batch, part in self._parts.items() if part is not None]
        failure = self._failure
        if failure is None:
            return self._receipts(stored, count)
        if not stored:
            raise copy.copy(failure)
        receipts: list[Receipt | None] = [None] * count
        for batch, part in stored:
            for index, position in enumerate(self._positions[batch]):
                receipts[position] = Receipt(part, index)
        stored_count = count - receipts.count(None)
        raise PartlySent(
            f"{stored_count} of {count} messages are stored; the others are not, or it is "
            f"unknown: {failure}",
            receipts=receipts,
        ) from failure

    def _receipts(self, stored: Sequence[tuple[Batch, StoredBatch]], count: int) -> Receipts:
        parts = [part for _, part in stored]
        if all(isinstance(self._positions[batch], range) for batch, _ in stored):
            return Receipts(parts)
        places = [0] * count
        place = 0
        for batch, _ in stored:
            for position in self._positions[batch]:
                places[position] = place
                place += 1
        return Receipts(parts, places)

    def _count_down(self) -> None:
        self._waiting -= 1
        if self._waiting == 0 and not self._done.done():
            self._done.set_result(None)


class BlockSender:
    """Turns the messages of a `send_batch` into batches."""

    def __init__(
        self,
        delivery: Delivery,
        targets: Targets,
        ids: UniqueIdGenerator,
        clock: Clock,
        config: ProducerConfig,
    ) -> None:
        self._delivery = delivery
        self._targets = targets
        self._ids = ids
        self._clock = clock
        self._config = config

        self._end_s: float | None = None
        """When the time of the whole call is over; None: each batch has a time of its own."""

    async def send(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        timeout_ms: int,
        *,
        is_bounded: bool,
    ) -> Receipts:
        """Send everything; see `Producer.send_batch`. Bodies are within their limit. `is_bounded`:
        the time is that of the whole call."""
        if is_bounded:
            self._end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        try:
            for topic in set(map(_TOPIC, messages)):
                target = await self._targets.find(topic, timeout_ms=self._left_ms(timeout_ms))
                if queue is not None:
                    target.check_queue(queue)
        except errors.AerobeeError:
            self._delivery.counts.messages_failed += len(messages)
            raise
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        block = SendBlock(done)
        try:
            for start in range(0, len(messages), SLICE_MESSAGES_MAX):
                if start:
                    await asyncio.sleep(0)
                await self._send_slice(messages, start, queue, timeout_ms, block)
        except errors.AerobeeError as error:
            self._delivery.counts.messages_failed += len(messages) - block.message_count
            block.fail(error)
        block.complete()
        await done
        return block.result(len(messages))

    async def _send_slice(
        self,
        messages: Sequence[Message],
        start: int,
        queue: MessageQueue | None,
        timeout_ms: int,
        block: SendBlock,
    ) -> None:
        """Messages from `start` on, grouped by topic, kind of delay and, with a sharding key, by
        queue."""
        part = messages[start : start + SLICE_MESSAGES_MAX]
        positions = range(start, start + len(part))
        is_one_kind = len(set(map(_TOPIC, part))) == 1 and not any(map(_SCHEDULE, part))
        if is_one_kind and (queue is not None or not any(map(_SHARDING_KEY, part))):
            await self._send_group(part, positions, queue, timeout_ms, block)
            return
        groups: dict[tuple[str, MessageQueue | None, int | None], list[int]] = {}
        for index, message in enumerate(part):
            chosen = queue
            if chosen is None and message.sharding_key is not None:
                target = await self._targets.found(
                    message.topic, timeout_ms=self._left_ms(timeout_ms)
                )
                chosen = by_sharding_key(target.keyed_queues, message.sharding_key)
            level = None if message.schedule is None else message.schedule.level
            groups.setdefault((message.topic, chosen, level), []).append(index)
        for (_, chosen, _), indexes in groups.items():
            await self._send_group(
                [part[index] for index in indexes],
                [positions[index] for index in indexes],
                chosen,
                timeout_ms,
                block,
            )

    async def _send_group(
        self,
        messages: Sequence[Message],
        positions: Sequence[int],
        queue: MessageQueue | None,
        timeout_ms: int,
        block: SendBlock,
    ) -> None:
        """Messages of one topic and kind of delay, in batches; without a chosen queue each batch
        takes the next one."""
        target = await self._targets.found(messages[0].topic, timeout_ms=self._left_ms(timeout_ms))
        now_ms = self._clock.now_ms()
        bodies = list(map(_BODY, messages))
        ids = self._ids.next_ids(now_ms, len(messages))
        properties = with_unique_keys(ids, _properties(messages, now_ms))
        schedule = messages[0].schedule
        sizes = [
            body_size + properties_size + RECORD_OVERHEAD_BYTES
            for body_size, properties_size in zip(
                map(len, bodies), map(len, properties), strict=True
            )
        ]
        flags = list(map(_FLAG, messages))
        has_flags = any(flags)
        begin = 0
        for end in split_sizes(sizes, bytes_max=self._config.batch_bytes_max):
            size = sum(sizes[begin:end])
            if not self._delivery.budget.take_nowait(size):
                own_end_s = self._clock.monotonic_s() + timeout_ms / 1_000
                await self._delivery.wait_for_room(size, end_s=self._end_s or own_end_s)
            now_s = self._clock.monotonic_s()
            batch = Batch(
                queue or self._delivery.selector.choose(target.queues, now_s=now_s),
                opened_s=now_s,
                born_timestamp_ms=now_ms,
                timeout_ms=timeout_ms,
                deadline_s=self._end_s,
                is_pinned=queue is not None,
                level=None if schedule is None else schedule.level,
            )
            batch.bodies = bodies[begin:end]
            batch.properties = properties[begin:end]
            batch.size = size
            if has_flags:
                batch.flags = {index: flag for index, flag in enumerate(flags[begin:end]) if flag}
            block.add(batch, positions[begin:end])
            self._delivery.submit(batch)
            begin = end

    def _left_ms(self, timeout_ms: int) -> int:
        if self._end_s is None:
            return timeout_ms
        return max(1, int((self._end_s - self._clock.monotonic_s()) * 1_000))


def _properties(messages: Sequence[Message], now_ms: int) -> Iterable[bytes]:
    """Of messages sent now: either all of them ask for a delay, or none does."""
    if messages[0].schedule is None:
        return map(_PROPERTIES, messages)
    return [
        message.schedule.request(now_ms) + message.encoded_properties
        for message in messages
        if message.schedule is not None
    ]
