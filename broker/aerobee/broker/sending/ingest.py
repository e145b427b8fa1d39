"""The send path: from a client's batches to acknowledged records. Read this file first.

    frame of batches -> may we? (guard) -> join neighbours, check the bytes (store.format: batch,
      client_records) -> does it arrive later? (delays, halves) -> stored before? (store.producers)
      -> append (append)
      -> acknowledge now (page cache), or when `wait_end` is safe

Owns: the order of these steps and the answer to each batch. Everything here is synchronous and runs
on the loop, so that with page-cache acknowledgement a frame is answered in the turn in which it
came.
Invariants: every batch gets exactly one receipt, in the order of the frame; what is refused was not
stored; an invalid batch does not affect its neighbours; batches of one queue keep their order. A
numbered batch that is already stored is not stored again, but answered as the first time, and again
only once it is safe: a producer that does not know what happened to a batch resends it with the
same numbers. Usually all of it is stored or nothing. After a crash only its beginning may be,
because the log ends after its last complete record; the answer then says how much, and the rest
comes as a batch of its own. A delayed batch belongs to the queue in which it waits: it is stored
there, and looked up there when it is resent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from aerobee.broker.counters import Counters
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.delays import (
    TimerMemory,
    WaitingBatch,
    may_ask_for_delay,
    waiting_batch,
)
from aerobee.broker.sending.durability import Late
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.half_ingest import HalfIngest
from aerobee.broker.sending.halves import HalfMemory
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    CorruptBody,
    InvalidArgument,
    MessageIllegal,
    MessageTooLarge,
    PropertiesTooLarge,
    StoreFailed,
)
from aerobee.store.engine.producers.producers import Producers
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import (
    BatchFault,
    BatchIllegal,
    BatchLimits,
    check_batch,
    number_batch,
)
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.client_records import check_client_records
from aerobee.store.format.delayed_records import MOVING_BYTES_MAX, DelayRules
from aerobee.store.format.producer_number import PRODUCER_ID_END, SEQUENCE_END, ProducerRun
from aerobee.store.format.tags import TagsCodes

_ERROR_OF_FAULT: dict[BatchFault, type[AerobeeError]] = {
    BatchFault.BODY_TOO_LARGE: MessageTooLarge,
    BatchFault.RECORD_TOO_LARGE: MessageTooLarge,
    BatchFault.BATCH_TOO_LARGE: MessageTooLarge,
    BatchFault.PROPERTIES_TOO_LARGE: PropertiesTooLarge,
    BatchFault.BODY_CRC: CorruptBody,
}

_MALFORMED = "these are not records of a producer: encode the batch again"
_ADVICE: dict[BatchFault, str] = {
    BatchFault.SIZES: "give the size of each record",
    BatchFault.MAGIC: _MALFORMED,
    BatchFault.LENGTHS: _MALFORMED,
    BatchFault.TOPIC: "a batch carries only records of the topic that it names",
    BatchFault.HOST: "ask the route again, which names the broker's address family, and encode "
    "the batch anew",
    BatchFault.BODY_TOO_LARGE: "send a smaller one, or a reference to where it is stored",
    BatchFault.RECORD_TOO_LARGE: "send a smaller message",
}
"""What to do, where the codec's own message does not say it."""

_WAITING_FACTOR = 3
"""No record grows by this factor: its topic is repeated, and its time takes 60 bytes."""


class IncomingBatch(Protocol):
    """Records for one queue, as an edge passes them in."""

    @property
    def sequence(self) -> int: ...

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def records(self) -> bytes | memoryview:
        """A writable view is nobody else's: the batch may be stamped there."""
        ...

    @property
    def record_sizes(self) -> Sequence[int]: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def skip_wait(self) -> bool: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_sequence(self) -> int: ...

    @property
    def is_half(self) -> bool:
        """Its messages wait until their transactions end."""
        ...


@dataclass(slots=True)
class Receipt:
    """The answer to one batch. `wait_end` > 0: send it only once the log is safe up to there."""

    sequence: int
    error: AerobeeError | None = None
    """Why the batch was refused: nothing was stored."""
    base_queue_offset: int = 0
    base_physical_offset: int = 0
    store_timestamp_ms: int = 0
    stored_count: int = 0
    """For a batch that was stored only in part: how many records this receipt covers."""
    wait_end: int = 0
    timeout_ms: int = 0
    deliver_ms: int = 0
    """When the first message of the batch is due (Unix ms), if it was just stored and waits for a
    time."""
    transaction_id: str = ""
    """Of a half message."""
    late: Late | None = None
    """It is stored, but was not safe up to `wait_end` in time; this is why."""


@dataclass(slots=True)
class _Run:
    """Batches of one queue that are appended together."""

    positions: list[int] = field(default_factory=list)
    batches: list[IncomingBatch] = field(default_factory=list)
    records: list[bytes | memoryview] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    size: int = 0
    producers: list[ProducerRun] = field(default_factory=list)
    sequence_ends: dict[int, int] = field(default_factory=dict)
    """By producer, the number after its last record of the run."""


class Ingest:
    """Takes frames of batches and answers each batch."""

    def __init__(
        self,
        guard: Guard,
        appender: Appender,
        memory: Producers,
        counters: Counters,
        clock: Clock,
        *,
        limits: BatchLimits,
        delays: DelayRules,
        halves: HalfMemory,
        timers: TimerMemory,
        store_host_ipv6: bool,
        tags: TagsCodes,
        waits: bool,
    ) -> None:
        """`waits`: receipts promise the disk or the replicas."""
        self._guard = guard
        self._appender = appender
        self._memory = memory
        self._counters = counters
        self._clock = clock
        self._limits = limits
        # A client's message may be larger where it waits, by its topic and its time.
        self._waiting_limits = replace(
            limits,
            batch_bytes_max=_WAITING_FACTOR * limits.batch_bytes_max,
            properties_bytes_max=limits.properties_bytes_max - MOVING_BYTES_MAX,
        )
        self._delays = delays
        self._timers = timers
        self._halves = HalfIngest(
            guard,
            appender,
            halves,
            counters,
            checked=self._checked,
            checked_waiting=self._checked_waiting,
            receipt=self._receipt,
            refusal=self._refusal,
        )
        self._store_host_ipv6 = store_host_ipv6
        self._tags = tags
        self._waits = waits

    @property
    def limits(self) -> BatchLimits:
        return self._limits

    def accept(self, batches: Sequence[IncomingBatch]) -> list[Receipt]:
        """Store what is valid, refuse what is not; receipts in the order of the batches."""
        try:
            self._guard.check_master()
        except AerobeeError as error:
            return self.refuse(batches, error)
        try:
            with self._appender.publishing:
                if len(batches) == 1:
                    return [self._accept_one(batches[0])]
                return self._accept_many(batches)
        except StoreFailed as failure:
            return self.refuse(batches, failure)

    def refuse(self, batches: Sequence[IncomingBatch], error: AerobeeError) -> list[Receipt]:
        """Refuse all of them because of `error`."""
        return [self._refusal(batch, error) for batch in batches]

    def _accept_many(self, batches: Sequence[IncomingBatch]) -> list[Receipt]:
        """Batches of the same queue are appended as one: a frame of many small ones costs little
        more than a single large one."""
        receipts: list[Receipt | None] = [None] * len(batches)
        runs: dict[tuple[str, int], _Run] = {}
        self._accept_halves(batches, receipts)
        size_max = self._limits.batch_bytes_max
        for position, batch in enumerate(batches):
            if receipts[position] is not None:
                continue
            # Each access to a protobuf field creates a new object: do it once.
            records = batch.records
            sizes = batch.record_sizes
            size = len(records)
            if not sizes or sum(sizes) != size:
                # Joined with others, its sizes might add up by accident.
                receipts[position] = self._accept_one(batch)
                continue
            queue = (batch.topic, batch.queue_id)
            run = runs.get(queue)
            producer_id = batch.producer_id
            sequence = batch.producer_sequence if producer_id else 0
            if producer_id:
                if run is not None and sequence < run.sequence_ends.get(producer_id, 0):
                    # It may be in the run: look it up once that is stored.
                    self._append_run(queue, runs.pop(queue), receipts)
                    run = None
                if not self._is_new(queue, producer_id, sequence, len(sizes)):
                    if run is not None:
                        # A delayed batch has its numbers in another queue: it may be new.
                        self._append_run(queue, runs.pop(queue), receipts)
                    receipts[position] = self._accept_one(batch)
                    continue
            if run is None or run.size + size > size_max:
                if run is not None:
                    self._append_run(queue, run, receipts)
                run = runs[queue] = _Run()
            run.positions.append(position)
            run.batches.append(batch)
            run.records.append(records)
            run.counts.append(len(sizes))
            run.sizes.extend(sizes)
            run.size += size
            run.producers.append(ProducerRun(producer_id, sequence, len(sizes)))
            if producer_id:
                run.sequence_ends[producer_id] = sequence + len(sizes)
        for queue, run in runs.items():
            self._append_run(queue, run, receipts)
        complete = [receipt for receipt in receipts if receipt is not None]
        assert len(complete) == len(batches), "every batch has its receipt"
        return complete

    def _accept_halves(
        self, batches: Sequence[IncomingBatch], receipts: list[Receipt | None]
    ) -> None:
        halves = [position for position, batch in enumerate(batches) if batch.is_half]
        accepted = self._halves.accept([batches[position] for position in halves])
        for position, receipt in zip(halves, accepted, strict=True):
            receipts[position] = receipt

    def _append_run(
        self, queue: tuple[str, int], run: _Run, receipts: list[Receipt | None]
    ) -> None:
        """Append a run's batches as one and fill in their receipts."""
        topic, queue_id = queue
        try:
            self._guard.check_send(topic, queue_id)
            joined = self._checked(topic, _joined(run.records), run.sizes)
            if may_ask_for_delay(joined.properties.joined):
                self._accept_each(run, receipts)
                return
            if run.sequence_ends:
                number_batch(joined, run.producers)
            appended = self._appender.append(joined, queue_id=queue_id, batches=len(run.batches))
        except BatchIllegal:
            # One of them is invalid: answer each on its own.
            self._accept_each(run, receipts)
            return
        except AerobeeError as error:
            for position, batch in zip(run.positions, run.batches, strict=True):
                receipts[position] = self._refusal(batch, error)
            return
        queue_offset = appended.base_queue_offset
        physical_offset = appended.base_physical_offset
        for index, batch in enumerate(run.batches):
            receipts[run.positions[index]] = self._receipt(
                batch, appended, queue_offset, physical_offset
            )
            queue_offset += run.counts[index]
            physical_offset += len(run.records[index])

    def _accept_each(self, run: _Run, receipts: list[Receipt | None]) -> None:
        for position, batch in zip(run.positions, run.batches, strict=True):
            receipts[position] = self._accept_one(batch)

    def _is_new(self, queue: tuple[str, int], producer_id: int, sequence: int, count: int) -> bool:
        try:
            _check_numbers(producer_id, sequence, count)
            standing = self._memory.standing(*queue, producer_id, sequence, count)
        except AerobeeError:
            return False
        return standing.stored_count == 0

    def _accept_one(self, batch: IncomingBatch) -> Receipt:
        topic, queue_id = batch.topic, batch.queue_id
        if batch.is_half:
            (receipt,) = self._halves.accept([batch])
            return receipt
        deliver_ms = 0
        try:
            self._guard.check_send(topic, queue_id)
            checked = self._checked(topic, batch.records, batch.record_sizes)
            producer_id = batch.producer_id
            waiting = waiting_batch(
                checked,
                queue_id,
                now_ms=self._clock.now_ms(),
                rules=self._delays,
                waits_if_past=producer_id != 0,
            )
            if waiting is not None:
                checked, queue_id = self._checked_waiting(waiting), waiting.queue_id
                deliver_ms = waiting.deliver_ms[0] if waiting.deliver_ms else 0
            if producer_id:
                sequence = batch.producer_sequence
                resent = self._resent(batch, (checked.topic, queue_id), producer_id, sequence)
                if resent is not None:
                    return resent
                number_batch(checked, (ProducerRun(producer_id, sequence, checked.count),))
            appended = self._appender.append(checked, queue_id=queue_id, batches=1)
            if deliver_ms:
                assert waiting is not None, "it has a time"
                self._timers.stored(topic, checked, waiting.deliver_ms, appended)
        except BatchIllegal as illegal:
            return self._refusal(batch, illegal)
        except AerobeeError as error:
            return self._refusal(batch, error)
        receipt = self._receipt(
            batch, appended, appended.base_queue_offset, appended.base_physical_offset
        )
        receipt.deliver_ms = deliver_ms
        return receipt

    def _checked(
        self, topic: str, records: bytes | memoryview, sizes: Sequence[int]
    ) -> CheckedBatch:
        """Raises BatchIllegal for bytes that are not records, or not from a client."""
        checked = check_batch(
            records,
            sizes,
            topic=topic,
            limits=self._limits,
            store_host_ipv6=self._store_host_ipv6,
            tags=self._tags,
        )
        check_client_records(checked)
        return checked

    def _checked_waiting(self, waiting: WaitingBatch) -> CheckedBatch:
        """In the form in which it is stored; only what is too large is refused."""
        return check_batch(
            waiting.records,
            waiting.sizes,
            topic=waiting.topic,
            limits=self._waiting_limits,
            store_host_ipv6=self._store_host_ipv6,
            tags=self._tags,
        )

    def _resent(
        self, batch: IncomingBatch, queue: tuple[str, int], producer_id: int, sequence: int
    ) -> Receipt | None:
        """The answer to a batch that is already stored, in whole or only its beginning; None for a
        new one. The producer must send the rest, since other records may follow the beginning.
        Raises InvalidArgument, OutOfSequence, StoreFailed."""
        count = len(batch.record_sizes)
        _check_numbers(producer_id, sequence, count)
        memory = self._memory
        standing = memory.standing(*queue, producer_id, sequence, count)
        stored_count, queue_offset = standing.stored_count, standing.queue_offset
        if stored_count == 0:
            return None
        place = memory.place(*queue, queue_offset, stored_count)
        self._counters.duplicates_dropped += 1
        receipt = self._receipt(batch, place, queue_offset, place.base_physical_offset)
        if stored_count < count:
            receipt.stored_count = stored_count
            if self._waits:
                # Until the beginning is confirmed, another master may still have the rest.
                receipt.wait_end = place.end
                receipt.timeout_ms = batch.timeout_ms
        return receipt

    def _receipt(
        self, batch: IncomingBatch, appended: Appended, queue_offset: int, physical_offset: int
    ) -> Receipt:
        receipt = Receipt(
            batch.sequence, None, queue_offset, physical_offset, appended.store_timestamp_ms
        )
        if self._waits and not batch.skip_wait:
            receipt.wait_end = appended.end
            receipt.timeout_ms = batch.timeout_ms
        return receipt

    def _refusal(self, batch: IncomingBatch, error: AerobeeError | BatchIllegal) -> Receipt:
        if isinstance(error, BatchIllegal):
            error = _error_of(error)
        self._counters.refuse(error)
        return Receipt(batch.sequence, error)


def _error_of(illegal: BatchIllegal) -> AerobeeError:
    """The codec's finding as an error that clients know."""
    advice = _ADVICE.get(illegal.kind)
    sentence = str(illegal) if advice is None else f"{illegal}; {advice}"
    return _ERROR_OF_FAULT.get(illegal.kind, MessageIllegal)(sentence)


def _joined(records: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """End to end, in memory that is nobody else's if they are more than one."""
    return records[0] if len(records) == 1 else memoryview(bytearray().join(records))


def _check_numbers(producer_id: int, sequence: int, count: int) -> None:
    """Raises InvalidArgument unless records can carry these numbers."""
    if producer_id >= PRODUCER_ID_END or sequence + count > SEQUENCE_END:
        raise InvalidArgument(
            f"producer {producer_id:x} cannot number {count} messages from {sequence} on: ids "
            f"end below {PRODUCER_ID_END}, numbers below {SEQUENCE_END}; continue with a new id"
        )
