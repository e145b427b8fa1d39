"""The messages of owned queues from one replica of a broker group, over one pull stream.

Owns: the queues of the stream, its handles and the credit commands. A queue is subscribed under a
handle at its own fetch offset; its owner decides what frames mean, and where its queues go after a
break. The stream ends when no queue is left.
Invariants: a handle belongs to one queue and is never used twice; one task writes, one reads, and
neither is per queue or per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aerobee.cluster_view.channels import Stream
from aerobee.consumer_client.filters import wire_filter
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.owned_queue import OwnedQueue
from aerobee.consumer_client.pull_frames import Pulled
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.task_groups import run_together
from aerobee.v1 import broker_pb2, common_pb2

PullStream = Stream[broker_pb2.PullCommand, Pulled]

GOES_ON = frozenset(
    {
        common_pb2.OK,
        common_pb2.OFFSET_TOO_SMALL,
        common_pb2.OFFSET_TOO_LARGE,
        common_pb2.MESSAGE_REMOVED,
    }
)
"""After any other code the broker has forgotten the handle."""


class Fetcher:
    """Everything requested from one replica, on one stream after another."""

    def __init__(
        self,
        *,
        group: str,
        client_id: str,
        options: ConsumerConfig,
        on_result: Callable[[OwnedQueue, Pulled], None],
        on_ended: Callable[[OwnedQueue, errors.AerobeeError], None],
    ) -> None:
        """Neither callback may block. `on_result`: the queue's subscription continues after it.
        `on_ended`: the broker ended it."""
        self._group = group
        self._client_id = client_id
        self._options = options
        self._on_result = on_result
        self._on_ended = on_ended
        self._queues: dict[int, OwnedQueue] = {}
        self._handles: dict[OwnedQueue, int] = {}
        self._next_handle = 1
        # What the writer has to send to the broker, each handle once, in order.
        self._to_subscribe: dict[int, None] = {}
        self._to_unsubscribe: dict[int, None] = {}
        self._to_credit: dict[int, None] = {}
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"Fetcher(queues={len(self._queues)})"

    def add(self, owned: OwnedQueue) -> None:
        """Fetch a queue from its fetch offset on. Adding it again has no effect."""
        if owned in self._handles:
            return
        handle = self._next_handle
        self._next_handle = handle % 0xFFFF_FFFF + 1
        self._queues[handle] = owned
        self._handles[owned] = handle
        self._to_subscribe[handle] = None
        self._wake.set()

    def remove(self, owned: OwnedQueue) -> None:
        """Stop fetching a queue; frames in flight are ignored."""
        handle = self._handles.pop(owned, None)
        if handle is None:
            return
        del self._queues[handle]
        self._to_credit.pop(handle, None)
        if handle in self._to_subscribe:
            del self._to_subscribe[handle]
        else:
            self._to_unsubscribe[handle] = None
            self._wake.set()

    def take_all(self) -> list[OwnedQueue]:
        """Stop fetching all queues; returns them."""
        queues = list(self._handles)
        self._queues.clear()
        self._handles.clear()
        self._to_subscribe.clear()
        self._to_unsubscribe.clear()
        self._to_credit.clear()
        return queues

    def refresh_credit(self, owned: OwnedQueue) -> None:
        """The queue may have room again."""
        handle = self._handles.get(owned)
        if handle is not None and handle not in self._to_subscribe:
            self._to_credit[handle] = None
            self._wake.set()

    async def wait_for_queues(self) -> None:
        """Until there is something to fetch."""
        while not self._queues:
            self._wake.clear()
            await self._wake.wait()

    async def fetch(self, stream: PullStream) -> None:
        """Fetch over a new stream; returns when no queue is left.

        Raises:
            AerobeeError: the stream broke.
        """
        try:
            # A new stream has no state; new handles exclude late frames of the old one.
            for owned in self.take_all():
                self.add(owned)
            await run_together(self._write(stream), read=self._read(stream))
        finally:
            stream.cancel()

    async def _read(self, stream: PullStream) -> None:
        while (frame := await stream.read()) is not None:
            self._on_frame(frame)
        if self._queues:
            raise errors.Unreachable(f"{stream.address} ended the pull stream")
        self._wake.set()

    async def _write(self, stream: PullStream) -> None:
        """The stream's only writer; returns when there is nothing left to read."""
        while True:
            self._wake.clear()
            while (command := self._next_command()) is not None:
                await stream.write(command)
            if not self._queues:
                return
            await self._wake.wait()

    def _next_command(self) -> broker_pb2.PullCommand | None:
        if self._to_unsubscribe:
            handle = _pop_first(self._to_unsubscribe)
            return broker_pb2.PullCommand(unsubscribe=broker_pb2.UnsubscribeQueue(handle=handle))
        if self._to_subscribe:
            handle = _pop_first(self._to_subscribe)
            return broker_pb2.PullCommand(subscribe=self._subscription(handle))
        while self._to_credit:
            handle = _pop_first(self._to_credit)
            credit = self._queues[handle].take_credit()
            if credit:
                return broker_pb2.PullCommand(
                    credit=broker_pb2.GrantCredit(handle=handle, bytes=credit)
                )
        return None

    def _subscription(self, handle: int) -> broker_pb2.SubscribeQueue:
        owned = self._queues[handle]
        assignment = owned.assignment
        owned.on_subscribed()
        return broker_pb2.SubscribeQueue(
            handle=handle,
            request=broker_pb2.PullRequest(
                topic=assignment.queue.topic,
                queue_id=assignment.queue.queue_id,
                offset=owned.fetch_offset,
                group=self._group,
                filter=wire_filter(assignment.expression),
                max_bytes=self._options.fetch_bytes_max,
                max_messages=self._options.fetch_messages_max,
                lease_epoch=assignment.lease_epoch,
                client_id=self._client_id,
            ),
            credit_bytes=owned.take_credit(),
        )

    def _on_frame(self, frame: Pulled) -> None:
        owned = self._queues.get(frame.handle)
        if owned is None:
            return
        result = frame.result
        if result.code in GOES_ON:
            self._on_result(owned, frame)
            self.refresh_credit(owned)
            return
        del self._queues[frame.handle]
        self._handles.pop(owned, None)
        self._to_credit.pop(frame.handle, None)
        self._on_ended(owned, error_from_code(result.code, result.message))


def _pop_first(handles: dict[int, None]) -> int:
    handle = next(iter(handles))
    del handles[handle]
    return handle
