"""SendService: frames of batches in, receipts out.

With page-cache acknowledgement a frame is read, stored and answered without leaving its task. With
SYNC_FLUSH or SYNC_MASTER receipts wait for the disk or the replicas while further frames are read;
all receipts of a stream that a flush or a replica completes are sent in that turn, in one frame. A
second task writes only what the client does not take at once. A single send has no task: it is
answered by the event that makes its message safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc

from aerobee.access.meter import CURRENT_METER, SEND_PATIENCE_S, Meter, sending_meter
from aerobee.access.quota import Traffic
from aerobee.broker.counters import Counters
from aerobee.broker.edge.own.convert import ack_frame, host_of_peer
from aerobee.broker.edge.own.turns import TURN_ELEMENTS, in_turns
from aerobee.broker.sending.durability import Durability, Late
from aerobee.broker.sending.ingest import Ingest, Receipt
from aerobee.broker.sending.message_encoder import EncodedMessage, MessageEncoder, OutgoingMessage
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.rpc.call_border import Reply
from aerobee.rpc.served_method import answered_later, request_bytes, writer_at_once
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import QuotaExceeded
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

STREAM_BYTES_MAX = 32 * 1024 * 1024
"""Unacknowledged bytes of one stream; above this the stream is not read until some are safe."""
RECEIPTS_MAX = 32_768
"""Unsent or waiting receipts of one stream; above this the stream is not read either."""
ACKS_PER_FRAME_MAX = 16_384
ACKNOWLEDGE_TIMEOUT_DEFAULT_MS = 5_000
HOSTS_MAX = 1_024


class SendService(broker_pb2_grpc.SendServiceServicer):
    """Translates frames for Ingest and holds receipts back until they are fulfilled."""

    def __init__(
        self,
        ingest: Ingest,
        encoder: MessageEncoder,
        durability: Durability,
        counters: Counters,
        clock: Clock,
        *,
        promise: broker_pb2.Durability,
        on_acknowledged: Callable[[bool, float], None] = lambda *_: None,
    ) -> None:
        """`promise` is what an unqualified acknowledgement means. `on_acknowledged` is called for
        each frame of a stream, or part of one: whether it was in time, and how many seconds it
        took."""
        self._ingest = ingest
        self._encoder = encoder
        self._durability = durability
        self._counters = counters
        self._clock = clock
        self._promise = promise
        self._on_acknowledged = on_acknowledged
        self._hosts: dict[str, HostAddress] = {}
        """Hosts of connections that send single messages: parsing an address takes 6 us."""

    async def SendStream(self, request_iterator: object, context: Context) -> None:
        self._counters.send_streams += 1
        try:
            if self._durability.waits:
                await self._stream_with_waits(context)
            else:
                await self._stream_from_page_cache(context)
        finally:
            self._counters.send_streams -= 1

    async def _stream_from_page_cache(self, context: Context) -> None:
        accept = self._ingest.accept
        write_at_once = writer_at_once(context)
        meter = CURRENT_METER.get()
        while (frame := await context.read()) is not grpc.aio.EOF:
            refusal = None if meter is None else await _admitted(meter, frame, context)
            began_s = self._clock.monotonic_s()
            batches = frame.batches
            if refusal is not None:
                receipts = self._ingest.refuse(batches, refusal)
            elif len(batches) <= TURN_ELEMENTS:
                receipts = accept(batches)
            else:
                receipts = await self._accept_in_turns(batches)
            # Its records are stored: the frame need not stay in memory while the answer leaves.
            del frame, batches
            acks = ack_frame(receipts, self._promise)
            if not write_at_once(acks):
                await context.write(acks)
            self._on_acknowledged(True, self._clock.monotonic_s() - began_s)
            while self._durability.is_behind():
                await self._durability.wait_progress()

    async def _stream_with_waits(self, context: Context) -> None:
        write_frame = writer_at_once(context)

        def write(receipts: Sequence[Receipt]) -> bool:
            return write_frame(ack_frame(receipts, self._promise))

        meter = CURRENT_METER.get()
        pending = PendingReceipts(self._durability, self._clock, self._on_acknowledged, write)
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write_receipts(context, pending), name="send-receipts")
            while (frame := await context.read()) is not grpc.aio.EOF:
                refusal = None if meter is None else await _admitted(meter, frame, context)
                size = frame.ByteSize()
                batches = frame.batches
                if refusal is not None:
                    receipts = self._ingest.refuse(batches, refusal)
                elif len(batches) <= TURN_ELEMENTS:
                    receipts = self._ingest.accept(batches)
                else:
                    receipts = await self._accept_in_turns(batches)
                del frame, batches
                pending.add(receipts, size, self._clock.monotonic_s())
                await pending.wait_room()
            pending.finish()
            await writer

    async def _accept_in_turns(self, batches: Sequence[broker_pb2.RecordBatch]) -> list[Receipt]:
        receipts: list[Receipt] = []
        async for part in in_turns(batches):
            receipts += self._ingest.accept(part)
        return receipts

    async def _write_receipts(self, context: Context, pending: PendingReceipts) -> None:
        while receipts := await pending.take():
            await context.write(ack_frame(receipts, self._promise))

    @answered_later
    def Send(  # type: ignore[override]
        self, request: broker_pb2.SendRequest, context: Context, reply: Reply
    ) -> None:
        meter = sending_meter()
        if meter is not None:
            meter.spend(Traffic.SEND, request.ByteSize(), patience_s=0)
        outgoing = self._encoder.encode(
            OutgoingMessage(
                topic=request.topic,
                queue_id=request.queue_id,
                body=request.body,
                tag=request.tag,
                keys=tuple(request.keys),
                properties=request.properties,
                flag=request.flag,
                timeout_ms=request.timeout_ms,
            ),
            self._host_of(context.peer()),
        )
        (receipt,) = self._ingest.accept([outgoing.batch])
        if not receipt.wait_end:
            self._answer(reply, outgoing, receipt)
            return

        def told(in_time: bool) -> None:
            if not in_time:
                receipt.late = self._durability.why_late(receipt.wait_end)
            self._answer(reply, outgoing, receipt)

        deadline_s = _deadline_s(receipt, self._clock.monotonic_s())
        self._durability.acknowledged.add(receipt.wait_end, deadline_s, told)

    def _host_of(self, peer: str) -> HostAddress:
        host = self._hosts.get(peer)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            host = self._hosts[peer] = host_of_peer(peer)
        return host

    def _answer(self, reply: Reply, outgoing: EncodedMessage, receipt: Receipt) -> None:
        """The answer to a fulfilled receipt."""
        if receipt.error is not None:
            reply.refuse(receipt.error)
            return
        (ack,) = ack_frame([receipt], self._promise).acks
        message_id, handle = outgoing.message_id, ""
        if receipt.deliver_ms:
            handle = self._encoder.recall_handle(outgoing, receipt.deliver_ms)
        reply.answer(
            broker_pb2.SendResponse(
                message_id=message_id,
                recall_handle=handle,
                offset_message_id=self._encoder.offset_message_id(receipt.base_physical_offset),
                queue_id=outgoing.batch.queue_id,
                ack=ack,
            )
        )


async def _admitted(
    meter: Meter, frame: broker_pb2.SendFrame, context: Context
) -> QuotaExceeded | None:
    """Wait until the sender's quota has room for a frame; returns why its batches are refused."""
    if not meter.limits(""):
        return None
    try:
        size = request_bytes(context, frame)
        await meter.pause(meter.spend(Traffic.SEND, size, patience_s=SEND_PATIENCE_S))
    except QuotaExceeded as error:
        return error
    return None


class Acknowledging(Protocol):
    """What receipts need of `Durability`."""

    @property
    def acknowledged(self) -> EndWaiters: ...

    def why_late(self, end: int) -> Late: ...


class PendingReceipts:
    """Receipts of one stream that wait for disk or replicas, and those that are fulfilled.

    Invariant: each receipt is written at once or returned by `take`, exactly once, and only when it
    is fulfilled, refused or expired.
    """

    def __init__(
        self,
        durability: Acknowledging,
        clock: Clock,
        on_acknowledged: Callable[[bool, float], None],
        write_at_once: Callable[[Sequence[Receipt]], bool],
    ) -> None:
        """`write_at_once` returns whether it could write them; if not, they wait for `take`."""
        self._write_at_once = write_at_once
        self._durability = durability
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._ready: deque[Receipt] = deque()
        self._waiting = 0
        self._bytes = 0
        self._untaken = 0
        self._finished = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def add(self, receipts: Sequence[Receipt], size: int, now_s: float) -> None:
        """The receipts of one frame of `size` bytes."""
        self._untaken += len(receipts)
        waiting = [receipt for receipt in receipts if receipt.wait_end]
        if len(waiting) < len(receipts):
            self._ready.extend(receipt for receipt in receipts if not receipt.wait_end)
            self._write_ready()
        if not waiting:
            return
        # Usually one group: a client uses one timeout.
        by_timeout: dict[int, list[Receipt]] = {}
        for receipt in waiting:
            by_timeout.setdefault(receipt.timeout_ms, []).append(receipt)
        share = size // len(by_timeout)
        for group in sorted(by_timeout.values(), key=_end_of):
            self._wait(group, share, now_s)

    def _wait(self, receipts: list[Receipt], size: int, now_s: float) -> None:
        self._waiting += 1
        self._bytes += size

        def told(in_time: bool) -> None:
            if not in_time:
                safe_end = self._durability.acknowledged.end
                for receipt in receipts:
                    if receipt.wait_end > safe_end:  # the frame's first batches may be safe
                        receipt.late = self._durability.why_late(receipt.wait_end)
            self._on_acknowledged(in_time, self._clock.monotonic_s() - now_s)
            self._ready.extend(receipts)
            self._waiting -= 1
            self._bytes -= size
            self._room.set()
            waiters.afterwards(self._write_ready)

        waiters = self._durability.acknowledged
        waiters.add(_end_of(receipts), _deadline_s(receipts[0], now_s), told)

    def _write_ready(self) -> None:
        while self._ready:
            receipts = self._next_ready()
            if not self._write_at_once(receipts):
                self._ready.extendleft(reversed(receipts))
                break
            self._untaken -= len(receipts)
            self._room.set()
        if self._ready or self._finished:
            self._changed.set()

    def _next_ready(self) -> list[Receipt]:
        count = min(len(self._ready), ACKS_PER_FRAME_MAX)
        return [self._ready.popleft() for _ in range(count)]

    async def wait_room(self) -> None:
        """Until the stream may be read again."""
        while self._bytes > STREAM_BYTES_MAX or self._untaken > RECEIPTS_MAX:
            self._room.clear()
            await self._room.wait()

    async def take(self) -> list[Receipt]:
        """Receipts to send now; empty when the stream has ended and all are sent."""
        while not self._ready:
            if self._finished and not self._waiting:
                return []
            self._changed.clear()
            await self._changed.wait()
        receipts = self._next_ready()
        self._untaken -= len(receipts)
        self._room.set()
        return receipts

    def finish(self) -> None:
        """No more frames will come."""
        self._finished = True
        self._changed.set()


def _end_of(receipts: Sequence[Receipt]) -> int:
    return max(receipt.wait_end for receipt in receipts)


def _deadline_s(receipt: Receipt, now_s: float) -> float:
    return now_s + (receipt.timeout_ms or ACKNOWLEDGE_TIMEOUT_DEFAULT_MS) / 1_000
