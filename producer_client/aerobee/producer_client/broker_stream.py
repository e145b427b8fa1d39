"""The stream to one broker group: batches out, acknowledgements in.

Owns: what waits for this broker (the accumulator), what was sent and not yet acknowledged, and the
stream itself, which is opened when there is work and reopened when it breaks. One task writes;
nothing else runs per message or per batch. Acknowledgements are handled in the event loop iteration
in which they arrive, and a sender that awaits each message before the next writes it in that same
iteration.

Every batch that enters leaves exactly once through the owner: stored, refused, lost or expired.
Batches whose queue was chosen by the caller wait here, in order, until the group has a master again
or their time is over; so do numbered ones that may be stored, because only this group can tell.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.channels import Stream
from aerobee.cluster_view.methods import SEND_STREAM
from aerobee.cluster_view.route import Endpoint
from aerobee.producer_client.accumulator import Accumulator, Batch, EncodedBatch
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.encoder import Encoder
from aerobee.producer_client.frame import encode_frame
from aerobee.producer_client.receipt import Durability, SendStatus, StoredBatch
from aerobee.producer_client.refusals import denied
from aerobee.producer_client.store_host import StoreHosts
from aerobee.producer_client.turns import QueueTurns, Sequences
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.busy_poll import BusyPoll
from aerobee.runtime.retry import Backoff
from aerobee.store.format.message_id import UniqueIdGenerator
from aerobee.store.format.record import HostAddress
from aerobee.v1 import broker_pb2, common_pb2

RECONNECT_BACKOFF = Backoff(base_ms=20, max_ms=500)
CONNECT_TIMEOUT_S = 5.0
"""gRPC limits an attempt to connect to 3 s, but name resolution has no limit of its own."""
FAILURES_PER_QUERY = 4
"""After this many failed attempts in a row a nameserver is asked whether the master has changed."""
QUERY_TIMEOUT_MS = 500
ALONE_MIN = 8
"""After this many messages awaited one by one, the next does not wait for others of its moment."""
HALVES_MIN = 48
"""If at least this many messages were acknowledged together, the next ones leave in two halves: for
fewer, two frames cost more than both sides gain by working at the same time."""
ASK_AGAIN_S_MIN = 0.05
"""With less time left than this, a broker that stored but could not confirm is not asked again."""

_STORED = {
    common_pb2.OK: SendStatus.OK,
    common_pb2.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    common_pb2.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    common_pb2.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_DURABILITIES = {
    broker_pb2.DURABILITY_UNSPECIFIED: Durability.UNSPECIFIED,
    broker_pb2.PAGE_CACHE: Durability.PAGE_CACHE,
    broker_pb2.FSYNCED: Durability.FSYNCED,
    broker_pb2.REPLICATED: Durability.REPLICATED,
    broker_pb2.REPLICATED_FSYNCED: Durability.REPLICATED_FSYNCED,
}


class BatchOwner(Protocol):
    """Receives the outcomes of batches."""

    def on_stored(self, broker_name: str, batch: Batch, stored: StoredBatch) -> None: ...

    def on_refused(self, broker_name: str, batch: Batch, error: errors.AerobeeError) -> None:
        """The broker answered that nothing was stored."""

    def on_lost(
        self, broker_name: str, batches: Sequence[Batch], error: errors.AerobeeError
    ) -> None:
        """The broker is away; these batches may go elsewhere."""

    def on_unconfirmed(self, broker_name: str, batch: Batch, stored: StoredBatch) -> None:
        """The broker stored it, but disk or slaves did not confirm; there is time to ask again, and
        a number to ask with."""

    def on_partly_stored(
        self, broker_name: str, batch: Batch, stored: StoredBatch, count: int
    ) -> None:
        """After a crash only its first `count` messages were left."""

    def on_expired(self, broker_name: str, batch: Batch) -> None:
        """The batch's deadline has passed."""


class BrokerStream:
    """Sends batches to the master of one broker group."""

    def __init__(
        self,
        broker_name: str,
        *,
        connection: ClusterConnection,
        config: ProducerConfig,
        encoder: Encoder,
        ids: UniqueIdGenerator,
        turns: QueueTurns,
        sequences: Sequences | None,
        owner: BatchOwner,
        polling: BusyPoll | None,
    ) -> None:
        """Without `sequences`, batches have no numbers."""
        self.broker_name = broker_name
        self.accumulator = Accumulator(
            linger_ms=config.linger_ms, batch_bytes_max=config.batch_bytes_max
        )
        self._connection = connection
        self._clock = connection.clock
        self._encoder = encoder
        self._ids = ids
        self._turns = turns
        self._sequences = sequences
        self._owner = owner
        self._polling = polling
        self._frame_bytes_max = config.batch_bytes_max
        self._inflight_bytes_max = config.inflight_bytes_max
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[int, Batch] = {}
        self._in_flight_bytes = 0
        self._sequence = 0
        self._idle: asyncio.Future[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_s = 0.0
        self._stream: Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame] | None = None
        self._settled_since_write = 0
        """Messages acknowledged since the last frame was written."""
        self._alone_count = 0
        """How many frames in a row followed the acknowledgement of a single message."""
        self._is_answered_at_once = False
        """The newest acknowledgement did not wait for the disk or the replicas."""
        self._gathered = 0
        """Messages that arrived since the last frame was written, except those that joined a batch.
        """
        self._unwritten: bytes | None = None
        """A frame that could not leave in the iteration of its send."""
        self._endpoint: Endpoint | None = None
        self._has_moved = False
        self._route_changed = asyncio.Event()
        self._store_hosts = StoreHosts()
        self._store_host = HostAddress(ip=bytes(4), port=0)
        self._is_answered = False
        """The current stream, or the one that has just ended, had an answer."""
        self._frames_written = 0
        """On that stream."""
        self._failures = 0
        self._last_error: errors.AerobeeError | None = None

    def wake(self) -> None:
        """There is something to write, or room to write it."""
        idle = self._idle
        if idle is not None and not idle.done():
            idle.set_result(None)

    def offer(self, batch: Batch) -> None:
        """`wake` for a batch that has just arrived. It leaves at once if a few messages before it
        were each sent and acknowledged alone; with many senders, the first must not leave without
        the others. After many were acknowledged together, the first half leaves at once: while the
        broker stores it the other half is sent, and from then on both sides work at the same time.
        Not if each half would wait for a flush, or for the replicas, of its own.
        """
        self._gathered += len(batch)
        idle, settled = self._idle, self._settled_since_write
        if idle is not None and not self._in_flight:
            if settled >= HALVES_MIN and self._is_answered_at_once:
                missing = settled // 2 - self._gathered
                # Batches of chosen queues would wait for each other.
                if not batch.is_pinned:
                    if missing <= 0 and self._write_now():
                        return
                    batch.leaves_at = len(batch) + missing
            elif (
                settled == 1
                and self._alone_count >= ALONE_MIN
                and not idle.done()
                and len(self.accumulator) == 1
                and self._write_now()
            ):
                return
        self.wake()

    def write_half(self) -> None:
        """As many messages have joined a batch as its `leaves_at` says."""
        if self._idle is None or self._in_flight or not self._write_now():
            self.wake()

    def _write_now(self) -> bool:
        """Whether what is due has left in this iteration; the task that writes is idle."""
        stream = self._stream
        if stream is None or self._unwritten is not None:
            return False
        if self._encoder.is_long_work(tuple(self.accumulator)):
            return False
        frame = self._next_frame()
        if frame is not None and stream.write_at_once(frame):
            return True
        self._unwritten = frame
        return False

    def watch_deadline(self, batch: Batch) -> None:
        """To be called for each batch that enters the accumulator."""
        if self._expiry is None:
            self._expiry_s = batch.deadline_s
        elif batch.deadline_s < self._expiry_s:
            self._expiry.cancel()
            self._expiry_s = batch.deadline_s
        else:
            return
        delay_s = self._expiry_s - self._clock.monotonic_s()
        self._expiry = self._loop.call_later(max(0.0, delay_s), self._expire)

    def on_route(self, endpoint: Endpoint | None) -> None:
        """The group's master in a newer route; a different one ends the old stream."""
        old = self._endpoint
        if endpoint is None or endpoint == old:
            return
        self._route_changed.set()
        if self._stream is None or old is None:
            return
        if endpoint.address == old.address:
            # The same process, in a new term or with a disk that is full by now: news once.
            self._endpoint = endpoint
        else:
            self._has_moved = True
            self._stream.cancel()

    def abandon(self) -> list[Batch]:
        """Gives up all batches, without notifying the owner; for closing."""
        batches = [*self._in_flight.values(), *self.accumulator.drain()]
        self._in_flight.clear()
        self._in_flight_bytes = 0
        for timer in (self._expiry, self._linger):
            if timer is not None:
                timer.cancel()
        return batches

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            # It may also be woken by a timer for something that is over.
            while not self.accumulator:
                await self._wait_idle()
            try:
                await self._serve()
            except errors.AerobeeError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # A stream that breaks at that moment hides the cancellation behind its own
                    # error.
                    raise asyncio.CancelledError from error
                if self._has_moved:
                    self._has_moved = False
                    self._on_broken(errors.NotMaster(f"{self.broker_name!r} has a new master"))
                    continue
                self._on_broken(self._explained(error))
            self._failures += 1
            pause_s = RECONNECT_BACKOFF.delay_s(self._failures, self._connection.random)
            await self.wait_route(pause_s)

    def _explained(self, error: errors.AerobeeError) -> errors.AerobeeError:
        """A master that is away alone is another matter than a cluster that is."""
        is_away = isinstance(error, errors.Unreachable | errors.NoBrokerAvailable)
        if not is_away or not self._connection.routes.is_silent:
            return error
        return type(error)(
            f"{error}; no nameserver answers either: the cluster, or the network to it, is down"
        )

    async def wait_route(self, timeout_s: float) -> None:
        """Until the group has another master than the known one, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._route_changed.wait()
        self._route_changed.clear()

    async def _serve(self) -> None:
        """One stream from start to end; always ends with an error."""
        self._is_answered, self._frames_written = False, 0
        endpoint = self._endpoint = await self._find_endpoint()
        self._store_host = await self._store_hosts.find(endpoint)
        stream = self._connection.channels.open_stream(endpoint.address, SEND_STREAM)
        self._stream = stream
        try:
            await _wait_connected(stream)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(stream), name=f"send:{self.broker_name}:read")
                await self._write(stream)
        except ExceptionGroup as failures:
            expected = failures.subgroup(errors.AerobeeError)
            if expected is None or len(expected.exceptions) != len(failures.exceptions):
                raise
            error = expected.exceptions[0]
            raise error from None
        finally:
            self._stream = None
            self._settled_since_write = self._alone_count = self._gathered = 0
            self._unwritten = None
            stream.cancel()

    async def _find_endpoint(self) -> Endpoint:
        """The known master; nameservers are asked only if there is none, or it stays away.

        The watch keeps routes fresh, so a hanging nameserver does not delay a reconnection.
        """
        routes = self._connection.routes
        topic = next(iter(self.accumulator)).queue.topic
        route = routes.cached(topic)
        endpoint = route.master(self.broker_name) if route is not None else None
        if endpoint is None or self._failures % FAILURES_PER_QUERY == FAILURES_PER_QUERY - 1:
            routes.invalidate(topic)
            route = await routes.route(topic, timeout_ms=QUERY_TIMEOUT_MS)
            endpoint = route.master(self.broker_name)
        if endpoint is None:
            raise errors.NoBrokerAvailable(
                f"broker {self.broker_name!r} of topic {topic!r} has no live master now"
            )
        return endpoint

    async def _write(self, stream: Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame]) -> None:
        while True:
            if self._unwritten is not None:
                frame, self._unwritten = self._unwritten, None
                await stream.write(frame)
            now_s = self._clock.monotonic_s()
            first_sequence, batches = self._take(now_s)
            if not batches:
                self._wake_at_linger(now_s)
                await self._wait_idle()
                continue
            if self._encoder.is_long_work(batches):
                # Done in a thread, in order, while nothing is written.
                encoded = await asyncio.to_thread(self._encoded, batches)
            else:
                encoded = self._encoded(batches)
            _fill(batches, encoded)
            await stream.write(encode_frame(batches, first_sequence=first_sequence, now_s=now_s))

    def _next_frame(self) -> bytes | None:
        """What is due now, if encoding it is quick; None: nothing."""
        now_s = self._clock.monotonic_s()
        first_sequence, batches = self._take(now_s)
        if not batches:
            return None
        _fill(batches, self._encoded(batches))
        return encode_frame(batches, first_sequence=first_sequence, now_s=now_s)

    def _take(self, now_s: float) -> tuple[int, Sequence[Batch]]:
        """What is to be written now, with the sequence of its first batch."""
        first_sequence = self._sequence
        if self._in_flight_bytes >= self._inflight_bytes_max:
            return first_sequence, ()
        batches = self.accumulator.take(
            now_s, bytes_max=self._frame_bytes_max, claim=self._turns.claim
        )
        self._sequence += len(batches)
        self._gathered = 0
        if batches:
            self._frames_written += 1
            was_alone = self._settled_since_write == 1 and not self._in_flight
            self._alone_count = self._alone_count + 1 if was_alone else 0
            self._settled_since_write = 0
        for index, batch in enumerate(batches):
            self._in_flight[first_sequence + index] = batch
            self._in_flight_bytes += batch.size
            batch.attempts += 1
            batch.sent_s = now_s
            if batch.is_unnamed:
                batch.name(self._ids.next_ids(self._clock.now_ms(), len(batch)))
            if self._sequences is not None and not batch.is_recognised:
                batch.producer_id, batch.producer_sequence = self._sequences.take(
                    batch.numbered_in, len(batch)
                )
        return first_sequence, batches

    def _encoded(self, batches: Sequence[Batch]) -> list[EncodedBatch]:
        """[any thread] Changes nothing."""
        assert self._endpoint is not None, "it is served"
        return self._encoder.encode_all(batches, store_host_ipv6=self._endpoint.store_host_ipv6)

    async def _read(self, stream: Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame]) -> None:
        await stream.read_each(self._take_acks)
        raise errors.Unreachable(f"{stream.address} ended the send stream")

    def _take_acks(self, frame: broker_pb2.SendAckFrame) -> None:
        if self._polling is not None:
            self._polling.heard()
        self._failures = 0
        self._is_answered = True
        self._last_error = None
        for ack in frame.acks:
            batch = self._in_flight.pop(ack.sequence, None)
            if batch is None:
                continue  # its deadline has already passed
            self._in_flight_bytes -= batch.size
            self._settled_since_write += len(batch)
            status = _STORED.get(ack.code)
            if status is None:
                self._owner.on_refused(self.broker_name, batch, _error_of(ack))
                continue
            stored = self._stored(batch, ack, status)
            self._is_answered_at_once = stored.durability is Durability.PAGE_CACHE
            if 0 < ack.stored_count < len(batch):
                self._owner.on_partly_stored(self.broker_name, batch, stored, ack.stored_count)
            elif status is SendStatus.OK or not self._may_ask_again(batch):
                self._owner.on_stored(self.broker_name, batch, stored)
            else:
                self._owner.on_unconfirmed(self.broker_name, batch, stored)
        if self.accumulator:
            self.wake()

    def _may_ask_again(self, batch: Batch) -> bool:
        time_left_s = batch.deadline_s - self._clock.monotonic_s()
        return batch.is_recognised and time_left_s >= ASK_AGAIN_S_MIN

    def _stored(self, batch: Batch, ack: broker_pb2.SendAck, status: SendStatus) -> StoredBatch:
        encoded = batch.encoded
        assert encoded is not None
        properties, sizes = batch.properties, encoded.sizes
        if ack.stored_count:
            properties, sizes = properties[: ack.stored_count], sizes[: ack.stored_count]
        return StoredBatch(
            queue=batch.queue,
            status=status,
            durability=_DURABILITIES.get(ack.durability, Durability.UNSPECIFIED),
            base_queue_offset=ack.base_queue_offset,
            base_physical_offset=ack.base_physical_offset,
            store_timestamp_ms=ack.store_timestamp_ms,
            store_host=self._store_host,
            properties=properties,
            sizes=sizes,
            waits=batch.level is not None,
            transaction_id=ack.transaction_id,
        )

    def _on_broken(self, error: errors.AerobeeError) -> None:
        """Takes back all batches; those that must stay do, the others may go elsewhere."""
        self._last_error = error
        if (
            self._is_answered
            or self._frames_written > 1
            or not denied(list(self._in_flight.values()), error)
        ):
            for batch in self._in_flight.values():
                batch.is_outcome_unknown = True
        batches = self.abandon()
        self._expiry = None
        if not self._is_answered:
            # A stream that was accepted may have ended because secrets were replaced, or rights
            # changed: only a new one shows it.
            for batch in denied(batches, error):
                batches.remove(batch)
                self._owner.on_refused(self.broker_name, batch, error)
        staying = [batch for batch in batches if batch.must_stay]
        self.accumulator.put_back(staying)
        for batch in staying:
            batch.last_error = error
            self.watch_deadline(batch)
        leaving = [batch for batch in batches if not batch.must_stay]
        self._owner.on_lost(self.broker_name, leaving, error)

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        self._expiry = None
        for sequence, batch in list(self._in_flight.items()):
            if batch.deadline_s <= now_s:
                del self._in_flight[sequence]
                self._in_flight_bytes -= batch.size
                batch.is_outcome_unknown = True
                self._owner.on_expired(self.broker_name, batch)
            else:
                self.watch_deadline(batch)
        for batch in list(self.accumulator):
            if batch.deadline_s <= now_s:
                self.accumulator.remove(batch)
                batch.last_error = batch.last_error or self._last_error
                self._owner.on_expired(self.broker_name, batch)
            else:
                self.watch_deadline(batch)
        # Expired batches made room for waiting ones.
        self.wake()

    async def _wait_idle(self) -> None:
        self._idle = self._loop.create_future()
        try:
            await self._idle
        finally:
            self._idle = None

    def _wake_at_linger(self, now_s: float) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        due_s = self.accumulator.next_due_s(now_s)
        if due_s is not None and due_s > now_s:
            self._linger = self._loop.call_later(due_s - now_s, self.wake)


async def _wait_connected(
    stream: Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame],
) -> None:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S) as scope:
            await stream.wait_connected()
    except TimeoutError:
        if not scope.expired():
            raise
        raise errors.Unreachable(
            f"cannot reach {stream.address}: no connection within {CONNECT_TIMEOUT_S:g} s"
        ) from None


def _fill(batches: Sequence[Batch], encoded: Sequence[EncodedBatch]) -> None:
    for batch, each in zip(batches, encoded, strict=True):
        batch.encoded = each


def _error_of(ack: broker_pb2.SendAck) -> errors.AerobeeError:
    error = error_from_code(ack.code, ack.message)
    if isinstance(error, errors.Busy):
        error.retry_after_ms = ack.retry_after_ms
    return error
