"""Members send back messages they could not handle; the group gets them again later, or never.

    read the originals -> may this member? -> the intents are in the journal: finished, copy n
      -> the copies are in the log under their numbers -> the journal knows -> answer

Owns: the order of these steps, and the copies that could not be appended. Nothing is awaited
between the check of the member's lease and the copies, so nobody else can get the queue in between.

Invariant: a message answered with success is finished for its group on every replica that may
become master, and exactly one copy of it waits or is a dead letter, or will be: what this master
cannot append now, it or the next one appends later. The intent alone finishes an original; a
refused one is untouched. A repeated request finds it finished and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from aerobee.broker.groups.ownership import Claim
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import SentBack, TriedInOrder, Way
from aerobee.broker.offsets.writer import SENT_BACK_AT_ONCE, OffsetWriter
from aerobee.broker.retries.copies import copy_of, destination_of, is_stored, run_of
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.timers.acts import Destination, Standing
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy, InvalidArgument, MessageNotFound, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.tables.consumer_offset_table import Tried
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.dead_letter_fields import Death, GroupNameTooLong, origin_of
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store.format.record_view import Record
from aerobee.store.format.retry_records import ResendCircle, shortened_death

log = logging.getLogger(__name__)

FINISHED_RANGES_MAX = 10_000
"""For one group on one queue, beyond its offset."""
RETRY_S = 0.25
"""Pause after a copy that could not be appended."""


class Claims(Protocol):
    """Who may finish messages; `offsets.consumer_offsets.ConsumerOffsets` is one."""

    def claimed(self, key: GroupQueue, claim: Claim) -> OffsetWriter:
        """Where to record it. Raises AerobeeError."""
        ...


class Copying(Protocol):
    """The way into the log; `sending.own_writes.OwnWrites` is one."""

    @property
    def store_host_ipv6(self) -> bool: ...

    def append_copies(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        numbers: Sequence[ProducerRun],
        *,
        reserve: bool = False,
    ) -> object:
        """Raises AerobeeError, BatchIllegal: nothing was stored."""
        ...

    @property
    def publishing(self) -> AbstractContextManager[None]: ...


WayOf = Callable[[int, Record], Way]
"""Which copy replaces the message at an offset. Raises AerobeeError: none."""
ReadOriginal = Callable[[GroupQueue, int], Awaitable[bytes | None]]
"""The record at an offset of a queue; None: it is gone. Raises AerobeeError."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends messages of a queue back, and in which form.

    `retries_max`: the member's own limit; None: the group's. `attempts`: how often the messages
    have failed together, for ordered consumption; 0: not ordered. Then the group's limit is its
    `limit_in_order`."""

    key: GroupQueue
    claim: Claim
    client_id: str
    retries_max: int | None = None
    attempts: int = 0


class Failure(NamedTuple):
    """A message that could not be handled. `level`: see `retry_level`."""

    offset: int
    level: int = 0
    reason_class: str = ""
    reason: str = ""
    after_ms: int = 0
    """How long the member wants it to wait; 0: it does not say."""


@dataclass(slots=True)
class SentBackMessage:
    """The result for one message: refused, or finished with a copy in its place."""

    offset: int
    error: AerobeeError | None = None
    way: Way | None = None
    """None also if it was already sent back before."""
    done: asyncio.Future[None] | None = None
    """Success may be reported when this is done; None: now."""
    stays: bool = False
    """It is retried in its place."""
    attempts_max: int = 0
    """The attempt after which it is a dead letter; 0: there is none."""
    delay_ms: int = 0
    """How long the copy, or the message in its place, waits."""


class _Planned(NamedTuple):
    entry: SentBack
    data: bytes
    answer: SentBackMessage


class SendBacks:
    """On the loop; `run` completes what another master or a full disk left open."""

    def __init__(
        self,
        claims: Claims,
        writes: Copying,
        clock: Clock,
        *,
        term: Callable[[], OffsetWriter | None],
        standing: Standing,
        read_original: ReadOriginal,
        policy_of: Callable[[str], RetryPolicy],
        levels: DelayLevels,
        check: Callable[[], None],
        prepare: Callable[[str], Awaitable[None]],
        on_dead: Callable[[GroupQueue, int], None] = lambda key, count: None,
    ) -> None:
        """`term`: this master's term, once it knows everything. `check` raises AerobeeError when
        nothing may be stored now. `prepare` makes a group's topics. `on_dead` gets how many
        messages of a queue became dead letters."""
        self._claims = claims
        self._writes = writes
        self._clock = clock
        self._term = term
        self._standing = standing
        self._read_original = read_original
        self._policy_of = policy_of
        self._levels = levels
        self._check = check
        self._prepare = prepare
        self._on_dead = on_dead
        self._tell = warns(log, "copies of failed messages wait")
        self._worker = Worker(
            self.complete,
            self._tell,
            retry_s=RETRY_S,
            matters=lambda: self._term() is not None,
        )

    # ------------------------------------------------------------------------------ sending back

    async def send_back(self, sender: Sender, failures: Sequence[Failure]) -> list[SentBackMessage]:
        """Answers are in the order of `failures`. Each has its own error, or takes effect when it
        is `done`.

        Raises AerobeeError: nothing was sent back.
        """
        self._check()
        writer = self._claims.claimed(sender.key, sender.claim)
        times_before = 0
        if sender.attempts:
            attempts = self._attempts(writer, sender, failures)
            if not self._is_over(sender, failures, attempts):
                return self._leave(writer, sender, failures, attempts)
            times_before = attempts - 1
        await self._prepare(sender.key.group)
        failure_at = {failure.offset: failure for failure in failures}

        def way_of(offset: int, record: Record) -> Way:
            failure, times = failure_at[offset], record.reconsume_times
            if sender.attempts:
                return self._death(sender, failure, max(0, times) + times_before)
            delay = self._policy_of(sender.key.group).delay(
                times,
                self._clock.now_ms(),
                self._levels,
                asked_level=failure.level,
                retries_max=sender.retries_max,
                asked_ms=failure.after_ms,
            )
            return self._death(sender, failure, times) if delay is None else delay

        def otherwise(offset: int, record: Record) -> Way:
            # It has no room for the properties it needs to wait. A dead letter always fits.
            return self._death(sender, failure_at[offset], record.reconsume_times)

        offsets = [failure.offset for failure in failures]
        answers = await self.replace(sender, offsets, way_of, otherwise)
        now_ms = self._clock.now_ms()
        for answer in answers:
            answer.attempts_max = self._attempts_max(sender)
            if isinstance(answer.way, Delay):
                level, deliver_ms = answer.way
                wait_ms = self._levels.delay_ms(level) if level else deliver_ms - now_ms
                answer.delay_ms = max(0, wait_ms)
        return answers

    def _limit(self, sender: Sender) -> int | None:
        """How often a message may be redelivered; None: without end."""
        limit = sender.retries_max
        if limit is None or limit < 0:
            policy = self._policy_of(sender.key.group)
            limit = policy.limit_in_order if sender.attempts else policy.limit
        return limit

    def _attempts_max(self, sender: Sender) -> int:
        limit = self._limit(sender)
        return 0 if limit is None else limit + 1

    def _attempts(self, writer: OffsetWriter, sender: Sender, failures: Sequence[Failure]) -> int:
        """How often these have failed in order, as counted by the member or its predecessors."""
        tried = writer.tried(sender.key)
        is_known = tried is not None and tried.offset == _first(failures)
        return max(sender.attempts, tried.attempts if tried is not None and is_known else 0)

    def _is_over(self, sender: Sender, failures: Sequence[Failure], attempts: int) -> bool:
        limit = self._limit(sender)
        is_last = limit is not None and attempts > limit
        return is_last or any(failure.level < 0 for failure in failures)

    def _leave(
        self, writer: OffsetWriter, sender: Sender, failures: Sequence[Failure], attempts: int
    ) -> list[SentBackMessage]:
        """They are retried in their place."""
        answers = [SentBackMessage(failure.offset) for failure in failures]
        staying: list[SentBackMessage] = []
        for answer in answers:
            try:
                if not self._is_finished(writer, sender.key, answer):
                    staying.append(answer)
            except AerobeeError as error:
                answer.error = error
        if staying:
            tried = Tried(_first(failures), attempts)
            now_ms = self._clock.now_ms()
            done = writer.try_again(TriedInOrder(sender.key, tried, now_ms, sender.client_id))
            back_off = self._policy_of(sender.key.group).back_off_in_order
            for answer in staying:
                answer.done, answer.stays = done, True
                answer.attempts_max = self._attempts_max(sender)
                answer.delay_ms = back_off.delay_ms(attempts - 1)
        return answers

    async def replace(
        self, sender: Sender, offsets: Sequence[int], way_of: WayOf, otherwise: WayOf | None = None
    ) -> list[SentBackMessage]:
        """Finish messages and replace them with copies; `way_of` says which, and `otherwise` does
        for one whose copy does not fit. Answers as `send_back` does."""
        answers: list[SentBackMessage] = []
        for first in range(0, len(offsets), SENT_BACK_AT_ONCE):
            some = offsets[first : first + SENT_BACK_AT_ONCE]
            originals = [await self._original(sender.key, offset) for offset in some]
            answers += self._replace(sender, some, originals, way_of, otherwise)
        return answers

    async def _original(self, key: GroupQueue, offset: int) -> bytes | AerobeeError:
        try:
            data = await self._read_original(key, offset)
        except StoreFailed:
            raise
        except AerobeeError as error:
            return error
        if data is None:
            return MessageNotFound(
                f"queue {key.queue_id} of topic {key.topic} no longer has a message at offset "
                f"{offset}"
            )
        return data

    def _replace(
        self,
        sender: Sender,
        offsets: Sequence[int],
        originals: Sequence[bytes | AerobeeError],
        way_of: WayOf,
        otherwise: WayOf | None,
    ) -> list[SentBackMessage]:
        try:
            self._check()
            writer = self._claims.claimed(sender.key, sender.claim)
        except AerobeeError as error:
            return [SentBackMessage(offset, error) for offset in offsets]
        answers: dict[int, SentBackMessage] = {}
        planned: list[_Planned] = []
        for offset, original in zip(offsets, originals, strict=True):
            if offset not in answers:
                answer = answers[offset] = SentBackMessage(offset)
                try:
                    if not self._is_finished(writer, sender.key, answer):
                        if isinstance(original, AerobeeError):
                            raise original
                        record = Record(original, 0, len(original))
                        plan = self._plan(writer, sender, record, answer, way_of, otherwise)
                        planned.append(plan)
                except AerobeeError as error:
                    answer.error = error
        self._carry_out(writer, sender.key, planned)
        return [answers[offset] for offset in offsets]

    def _is_finished(self, writer: OffsetWriter, key: GroupQueue, answer: SentBackMessage) -> bool:
        """Whether it was already sent back. Raises AerobeeError."""
        if writer.is_finished_beyond(key, answer.offset):
            # That may be in memory only; after a success the client commits, possibly to disk.
            answer.done = writer.make_durable()
            return True
        standing = writer.standing(key)
        if standing is not None and answer.offset < standing.offset:
            raise InvalidArgument(
                f"offset {answer.offset} of queue {key.queue_id} of topic {key.topic} is below the "
                f"committed offset of group {key.group}, {standing.offset}: it is finished, and "
                "cannot be sent back"
            )
        return False

    def _plan(
        self,
        writer: OffsetWriter,
        sender: Sender,
        record: Record,
        answer: SentBackMessage,
        way_of: WayOf,
        otherwise: WayOf | None,
    ) -> _Planned:
        """Raises AerobeeError."""
        key = sender.key
        if writer.finished_count(key) >= FINISHED_RANGES_MAX:
            raise Busy(
                f"group {key.group} has finished {FINISHED_RANGES_MAX} messages of queue "
                f"{key.queue_id} of topic {key.topic} beyond its committed offset; finish the "
                "older ones first"
            )
        try:
            entry = self._entry(writer, sender, answer.offset, way_of(answer.offset, record))
            try:
                data = self._copy(record, entry)
            except RecordIllegal:
                if otherwise is None:
                    raise
                entry = self._entry(writer, sender, answer.offset, otherwise(answer.offset, record))
                data = self._copy(record, entry)
        except (RecordCorrupt, RecordIllegal, GroupNameTooLong, ResendCircle) as error:
            raise InvalidArgument(f"the message cannot be sent back: {error}") from error
        answer.way = entry.way
        return _Planned(entry, data, answer)

    def _entry(self, writer: OffsetWriter, sender: Sender, offset: int, way: Way) -> SentBack:
        now_ms = self._clock.now_ms()
        return SentBack(sender.key, offset, writer.next_copy, way, now_ms, sender.client_id)

    def _death(self, sender: Sender, failure: Failure, times: int) -> Death:
        return shortened_death(
            Death(
                sender.key.group,
                max(0, times) + 1,
                self._clock.now_ms(),
                failure.reason_class,
                failure.reason,
                sender.client_id,
            )
        )

    def _copy(self, record: Record, entry: SentBack) -> bytes:
        return copy_of(record, entry, store_host_ipv6=self._writes.store_host_ipv6).record

    def _carry_out(self, writer: OffsetWriter, key: GroupQueue, planned: list[_Planned]) -> None:
        """Append the intents, then the copies, in this turn of the loop."""
        if not planned:
            return
        # Copies for one queue have consecutive numbers: one interval of its window.
        planned.sort(key=lambda each: destination_of(each.entry))
        first = writer.next_copy
        numbered = [
            _Planned(_numbered(each.entry, first + index), each.data, each.answer)
            for index, each in enumerate(planned)
        ]
        try:
            done = writer.send_back([each.entry for each in numbered])
        except AerobeeError as error:
            for each in numbered:
                each.answer.error, each.answer.way = error, None
            return
        for each in numbered:
            each.answer.done = done
        try:
            self._append(writer, [(each.entry, each.data) for each in numbered])
        except StoreFailed:
            raise
        except AerobeeError as error:
            # They are owed and the intents stand: retried until it succeeds.
            self._tell(error)
            self.wake()
        dead = [each for each in numbered if isinstance(each.entry.way, Death)]
        if dead:
            self._on_dead(key, len(dead))
        for each in dead:
            _log_death(each.entry, Record(each.data, 0, len(each.data)))

    def _append(self, writer: OffsetWriter, copies: Sequence[tuple[SentBack, bytes]]) -> None:
        """Raises AerobeeError: some may be appended; the journal then knows which."""
        appended: list[int] = []
        try:
            with self._writes.publishing:
                for destination, group in groupby(copies, lambda each: destination_of(each[0])):
                    members = list(group)
                    self._append_batch(destination, members)
                    appended += [entry.number for entry, _ in members]
        finally:
            if appended:
                writer.note_copied(appended)

    def _append_batch(
        self, destination: Destination, members: Sequence[tuple[SentBack, bytes]]
    ) -> None:
        try:
            self._writes.append_copies(
                *destination,
                [data for _, data in members],
                [run_of(entry) for entry, _ in members],
                # Their originals are finished: like what the journal appends, they must get in.
                reserve=True,
            )
        except BatchIllegal as error:
            raise AerobeeError(f"the copy of a failed message is invalid: {error}") from error

    # ------------------------------------------------------------------------------ completing

    def wake(self) -> None:
        """Called when a term has begun or copies are owed."""
        self._worker.wake()

    async def run(self) -> None:
        """Append owed copies, until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        await self._worker.run()

    async def complete(self) -> None:
        """Append what is owed now. Raises AerobeeError: not all could be."""
        writer = self._term()
        if writer is None:
            return
        for entry in writer.owed_copies():
            data = await self._owed(entry)
            if self._term() is not writer:
                return
            if not writer.owes(entry):
                continue  # its topic has ended meanwhile
            if data is None:
                writer.note_copied([entry.number])
            else:
                self._append(writer, [(entry, data)])

    async def _owed(self, entry: SentBack) -> bytes | None:
        """The missing copy; None: it is not missing, or cannot be made. Raises AerobeeError."""
        stored = is_stored(entry, self._standing)
        if stored:
            return None
        if stored is None:
            log_event(
                log,
                "whether the copy of a failed message is stored is unknown; it is stored again",
                level=logging.WARNING,
                copy=entry,
            )
        original = await self._original(entry.key, entry.offset)
        try:
            if isinstance(original, MessageNotFound):
                raise original
            if isinstance(original, AerobeeError):
                raise _Later(str(original)) from original
            return self._copy(Record(original, 0, len(original)), entry)
        except (MessageNotFound, RecordCorrupt, RecordIllegal, ResendCircle) as error:
            log_event(
                log,
                "a failed message cannot be copied and will not be redelivered",
                level=logging.ERROR,
                reason=error,
                copy=entry,
            )
            return None


class _Later(AerobeeError):
    """The original cannot be read now."""


def _log_death(entry: SentBack, copy: Record) -> None:
    assert isinstance(entry.way, Death), entry
    origin = origin_of(copy)
    log_event(
        log,
        "message became a dead letter",
        level=logging.WARNING,
        group=entry.key.group,
        topic=origin.topic,
        message_id=copy.unique_key or origin.message_id,
        attempts=entry.way.attempts,
        dead_letter_topic=copy.topic,
    )


def _first(failures: Sequence[Failure]) -> int:
    return min((failure.offset for failure in failures), default=0)


def _numbered(entry: SentBack, number: int) -> SentBack:
    return SentBack(entry.key, entry.offset, number, entry.way, entry.timestamp_ms, entry.client_id)
