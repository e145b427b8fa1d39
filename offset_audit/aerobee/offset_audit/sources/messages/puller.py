"""Frames of records, range after range, from any replica of a broker group that answers.

The master is asked first, or the replica that it names for a reader far behind; while it is away,
its slaves are. What looks like a loss (messages that existed are missing) is believed only from a
master.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import GroupCalls
from aerobee.cluster_view.methods import PULL
from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.losses import Loss
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.ranges import OffsetRange
from aerobee.runtime import errors
from aerobee.runtime.retry import Backoff
from aerobee.v1 import broker_pb2, common_pb2

BACKOFF = Backoff(base_ms=100, max_ms=2_000)

ATTEMPT_MS_MAX = 10_000
"""One round of questions to a group; then its route is checked again."""

DOUBT_MS = 5_000
"""For how long a newly elected master may not yet show all that it has."""

GONE = (errors.TopicNotFound, errors.QueueNotFound)


@dataclass(frozen=True, slots=True)
class Frame:
    """Records of one queue as stored in the log: those of offsets [begin, end), and perhaps some
    after them; anything missing in the range before `begin` is in `losses`."""

    queue: MessageQueue
    begin: int
    end: int
    records: bytes
    losses: tuple[Loss, ...] = ()


@dataclass(slots=True)
class Puller:
    """The remaining ranges. All calls on one event loop, one at a time."""

    options: MessageOptions
    ranges: Sequence[OffsetRange]
    _connection: ClusterConnection = field(init=False)
    _calls: GroupCalls = field(init=False)
    _index: int = 0
    _position: int = -1
    _preferred: dict[str, int] = field(default_factory=dict)
    """The replica that each broker group named last."""

    def __post_init__(self) -> None:
        # Not entered: routes are requested when needed, and not watched.
        self._connection = ClusterConnection(self.options.nameservers, self.options.cluster)
        self._calls = GroupCalls(self._connection)

    async def close(self) -> None:
        await self._connection.channels.close()

    async def next(self) -> Frame | None:
        """The next frame, None after the last range.

        Raises AerobeeError: nobody answered in time, or the reason is one that time does not fix.
        """
        while self._index < len(self.ranges):
            wanted = self.ranges[self._index]
            begin = max(self._position, wanted.begin)
            if begin < wanted.end:
                frame = await self._frame(OffsetRange(wanted.queue, begin, wanted.end))
                self._position = frame.end
                return frame
            self._index += 1
            self._position = -1
        return None

    # ------------------------------------------------------------------------------ inside

    async def _frame(self, wanted: OffsetRange) -> Frame:
        clock = self._connection.clock
        begun_s = clock.monotonic_s()
        doubt_ms = min(DOUBT_MS, self.options.timeout_ms // 2)
        failures = 0
        while True:
            left_ms = self.options.timeout_ms - int((clock.monotonic_s() - begun_s) * 1_000)
            reason: errors.AerobeeError | None = None
            try:
                result = await self._pull(wanted, min(ATTEMPT_MS_MAX, max(1, left_ms)))
                if result.code == common_pb2.OK and result.next_offset > wanted.begin:
                    end = min(result.next_offset, wanted.end)
                    return Frame(wanted.queue, wanted.begin, end, result.records)
                result = await self._of_master(wanted, min(ATTEMPT_MS_MAX, max(1, left_ms)))
                frame = _judge(wanted, result)
                doubt_is_over = (clock.monotonic_s() - begun_s) * 1_000 >= doubt_ms
                if frame is not None and (doubt_is_over or not _may_come_back(result)):
                    return frame
            except GONE as error:
                if failures:
                    loss = Loss(wanted.queue, wanted.begin, wanted.end, str(error))
                    return Frame(wanted.queue, wanted.end, wanted.end, b"", (loss,))
                reason = error
            except errors.AerobeeError as error:
                if not error.retryable:
                    raise
                reason = error
            if reason is not None and left_ms <= 0:
                raise _too_late(wanted, self.options.timeout_ms, reason)
            failures += 1
            self._connection.routes.invalidate(wanted.queue.topic)
            await asyncio.sleep(BACKOFF.delay_s(failures, self._connection.random))

    async def _pull(self, wanted: OffsetRange, timeout_ms: int) -> broker_pb2.PullResult:
        queue = wanted.queue
        request = self._request(wanted)
        named = self._preferred.get(queue.broker_name)
        if named is not None:
            result = await self._ask_named(wanted, named, request, timeout_ms)
            if result is not None:
                return result
            del self._preferred[queue.broker_name]
        result = await self._calls.at_any(
            queue.topic, queue.broker_name, PULL, request, timeout_ms=timeout_ms
        )
        if result.HasField("suggested_broker_id"):
            self._preferred[queue.broker_name] = result.suggested_broker_id
        return result

    async def _ask_named(
        self,
        wanted: OffsetRange,
        broker_id: int,
        request: broker_pb2.PullRequest,
        timeout_ms: int,
    ) -> broker_pb2.PullResult | None:
        """None if this replica cannot help now."""
        route = await self._connection.routes.route(wanted.queue.topic, timeout_ms=timeout_ms)
        replicas = route.replicas(wanted.queue.broker_name)
        for endpoint in replicas:
            if endpoint.broker_id == broker_id:
                try:
                    result = await self._connection.channels.call(
                        endpoint.address, PULL, request, timeout_ms=timeout_ms // len(replicas)
                    )
                except errors.AerobeeError:
                    return None
                if result.code == common_pb2.OK and result.next_offset > wanted.begin:
                    return result
        return None

    async def _of_master(self, wanted: OffsetRange, timeout_ms: int) -> broker_pb2.PullResult:
        queue = wanted.queue
        return await self._calls.at_master(
            queue.topic, queue.broker_name, PULL, self._request(wanted), timeout_ms=timeout_ms
        )

    def _request(self, wanted: OffsetRange) -> broker_pb2.PullRequest:
        return broker_pb2.PullRequest(
            topic=wanted.queue.topic,
            queue_id=wanted.queue.queue_id,
            offset=wanted.begin,
            max_bytes=self.options.fetch_bytes,
            max_messages=min(wanted.end - wanted.begin, 65_536),
        )


def _judge(wanted: OffsetRange, result: broker_pb2.PullResult) -> Frame | None:
    """The meaning of a master's answer; None if it says nothing about the wanted messages."""
    if result.code == common_pb2.OK and result.next_offset > wanted.begin:
        end = min(result.next_offset, wanted.end)
        return Frame(wanted.queue, wanted.begin, end, result.records)
    if result.code in (common_pb2.OFFSET_TOO_SMALL, common_pb2.MESSAGE_REMOVED):
        if result.next_offset <= wanted.begin:
            return None
        end = min(result.next_offset, wanted.end)
        reason = "removed by retention"
    elif result.code in (common_pb2.OFFSET_TOO_LARGE, common_pb2.NO_NEW_MESSAGE):
        end, reason = wanted.end, "past the queue's end"
    else:
        return None
    return Frame(wanted.queue, end, end, b"", (Loss(wanted.queue, wanted.begin, end, reason),))


def _may_come_back(result: broker_pb2.PullResult) -> bool:
    return result.code in (common_pb2.OFFSET_TOO_LARGE, common_pb2.NO_NEW_MESSAGE)


def _too_late(
    wanted: OffsetRange, timeout_ms: int, reason: errors.AerobeeError
) -> errors.AerobeeError:
    return type(reason)(
        f"{wanted.queue} could not be read on from offset {wanted.begin} for {timeout_ms} ms "
        f"(option timeoutMs): {reason}"
    )
