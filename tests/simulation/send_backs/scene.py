"""Sent-back messages without a broker: a log, its faults, and a group.

The log is a list of records in append order: records of the offset journal, waiting copies, and
those that a timer delivered. What a master knows follows from the log alone, or from a snapshot of
its state; journal, windows and send-backs are the product's own code. A crash or a fail-over comes
between any two steps, or between an intent and its copies.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aerobee.broker.groups.ownership import NOBODYS, Claim
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import read_body
from aerobee.broker.journal.writer import JournalWriter
from aerobee.broker.offsets.entries import Entry, decode_entry
from aerobee.broker.offsets.merge import NO_LEASE, Change, ChangeKind
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.writer import OffsetWriter
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.broker.retries.send_backs import Failure, SendBacks, Sender, SentBackMessage
from aerobee.broker.timers.acts import Standing
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import AerobeeError, NotWritable
from aerobee.store.engine.producers.producer_windows import ProducerWindows
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX, retry_topic
from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.delayed_records import due_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.record_view import Record
from tests.simulation.journalled import Crash
from tests.simulation.judge import Judge

GROUP = "g"
ORIGINAL = GroupQueue(GROUP, "t", 0)
RETRIES = GroupQueue(GROUP, retry_topic(GROUP), 0)
MESSAGES = 12
RETRIES_MAX = 2
HOST = HostAddress(bytes((10, 0, 0, 1)), 10_911)


JUDGE = Judge()


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of a queue; `number`: of a copy; `of`: which copy was delivered here."""

    topic: str
    queue_id: int
    data: bytes
    run: ProducerRun | None = None
    of: ProducerRun | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    base_queue_offset: int
    end: int


@dataclass
class SceneLog:
    """One log that every master continues with, as much of it as is left."""

    written: Callable[[bytes], bytes]
    """The part of a journal record's body that gets into the log; a variant may lose some."""
    records: list[Stored | bytes] = field(default_factory=list)
    confirmed: int = 0
    flushed: int = 0
    waiting: list[tuple[int, bool, Callable[[bool], None]]] = field(default_factory=list)

    def journal(self) -> list[bytes]:
        return [record for record in self.records if isinstance(record, bytes)]

    def queue(self, topic: str, queue_id: int) -> list[Stored]:
        return [
            record
            for record in self.records
            if isinstance(record, Stored) and (record.topic, record.queue_id) == (topic, queue_id)
        ]

    def append(self, body: bytes, *, ends_topic: str = "") -> Placed:
        self.records.append(self.written(body))
        return Placed(len(self.journal()) - 1, len(self.records))

    def fail(self, error: Exception) -> None:
        JUDGE.broken(str(error))

    def when_confirmed(self, end: int, told: Callable[[bool], None]) -> None:
        self._wait(end, False, told)

    def when_flushed(self, end: int, told: Callable[[bool], None]) -> None:
        self._wait(end, True, told)

    def _wait(self, end: int, on_disk: bool, told: Callable[[bool], None]) -> None:
        self.waiting.append((end, on_disk, told))
        self.tell()

    def tell(self) -> None:
        while True:
            for each in self.waiting:
                end, on_disk, told = each
                if end <= (self.flushed if on_disk else self.confirmed):
                    self.waiting.remove(each)
                    told(True)
                    break
            else:
                return

    def cut(self, end: int) -> None:
        del self.records[end:]
        self.confirmed = min(self.confirmed, end)
        self.flushed = min(self.flushed, end)
        self.waiting.clear()


class SceneWriter(JournalWriter[Entry]):
    """Writes when the scene says so, not by the clock."""

    def _write_if_open(self, batch: object) -> None:
        return None


class SendBackScene:
    """One run; all randomness comes from the seed."""

    def __init__(
        self,
        seed: int,
        *,
        cuts_power: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """`cuts_power`: what was confirmed may be lost if it was not flushed."""
        self.chance = random.Random(seed)
        self.cuts_power = cuts_power
        self._trace = trace
        self.falls = 0
        self.copies = self.dead = 0
        """Those in the log at the end."""
        self.clock = ManualClock()
        self.log = SceneLog(self.written)
        self.failures_of = {
            f"m{number}": self.chance.choice((0, 0, 1, 1, 2, RETRIES_MAX + 1))
            for number in range(MESSAGES)
        }
        self.succeeded: set[str] = set()
        self.sent_back: dict[str, int] = {}
        """By message: the number of attempts of its last answered send-back."""
        self.breaks_appends = 0.0
        self.snapshot = b""
        for name in self.failures_of:
            self.log.records.append(Stored("t", 0, encoded(name)))
        self.log.confirmed = self.log.flushed = len(self.log.records)

    # ------------------------------------------------------------------------------ variants

    def written(self, body: bytes) -> bytes:
        """The part of a journal record's body that gets into the log; a variant may lose some."""
        return body

    @property
    def standing(self) -> Standing:
        """Used by a new master to look for copies."""
        return self.windows.standing

    # ------------------------------------------------------------------------------ the story

    def tell(self, what: str) -> None:
        if self._trace is not None:
            log = self.log
            self._trace(
                f"{what}: {len(log.records)} records, {log.confirmed} confirmed, "
                f"{log.flushed} flushed"
            )

    async def run(self, steps: int) -> None:
        """Raises Violation."""
        self.begin_term()
        for _ in range(steps):
            try:
                await self.step()
            except Crash:
                self.restart()
        self.breaks_appends = 0.0
        self.restart()
        for _ in range(200):
            self.writer.flush()
            self.confirm(len(self.log.records))
            await self.complete()
            await self.consume(may_fault=False)
        self.judge()

    async def step(self) -> None:
        chance = self.chance.random()
        self.breaks_appends = self.chance.choice((0.0, 0.0, 0.2))
        if chance < 0.62:
            await self.consume(may_fault=True)
        elif chance < 0.82:
            self.confirm(self.chance.randint(self.log.confirmed, len(self.log.records)))
        elif chance < 0.88:
            self.writer.flush()
        elif chance < 0.93:
            await self.complete()
        elif chance < 0.96:
            # The log first: see `TableFiles.add`.
            self.log.flushed = max(self.log.flushed, self.log.confirmed)
            self.log.tell()
            self.snapshot = self.table.snapshot_bytes(1)
        else:
            self.restart()
        await asyncio.sleep(0)

    # ------------------------------------------------------------------------------ the master

    def begin_term(self) -> None:
        """Everything in the log is confirmed and applied."""
        log = self.log
        bodies = log.journal()
        self.table = (
            ConsumerOffsetTable.load(self.snapshot) if self.snapshot else ConsumerOffsetTable()
        )
        self.state = OffsetJournalState(self.table, journal_end=len(bodies))
        log.confirmed = len(log.records)
        self.follow(bodies)
        self.windows = ProducerWindows()
        ends: dict[tuple[str, int], int] = {}
        for record in log.records:
            if isinstance(record, Stored):
                place = record.topic, record.queue_id
                if record.run is not None:
                    self.windows.appended(*place, [record.run], ends.get(place, 0), 1)
                ends[place] = ends.get(place, 0) + 1
        self.writer = SceneWriter("journal", "offsets", self.state, log)
        self.term = OffsetWriter(self.state, self.writer, self.clock, on_reset=lambda key: None)
        self.writer.attach(self.term)
        self.send_backs = SendBacks(
            self,
            self,
            self.clock,
            term=lambda: self.term,
            standing=self.standing,
            read_original=self.read_original,
            policy_of=lambda group: RetryPolicy(RETRIES_MAX),
            levels=DelayLevels.parse(),
            check=lambda: None,
            prepare=self.prepare,
        )
        self.begin_session()

    def follow(self, bodies: Sequence[bytes]) -> None:
        """Feeds the journal to the state."""
        for number in range(self.state.next_offset, len(bodies)):
            self.state.apply(read_body(bodies[number], decode_entry), number)

    def restart(self) -> None:
        """After a crash of the process, a fail-over, or a power cut."""
        self.falls += 1
        self.writer.end()
        log = self.log
        kept = log.confirmed
        if self.cuts_power:
            kept = min(log.flushed, log.confirmed)
        log.cut(self.chance.randint(kept, len(log.records)))
        if self.chance.random() < 0.5:
            self.snapshot = b""  # another replica, which followed from the journal's beginning
        self.tell("falls over")
        self.begin_term()

    def confirm(self, end: int) -> None:
        self.log.confirmed = max(self.log.confirmed, end)
        if self.chance.random() < 0.3:
            self.log.flushed = max(self.log.flushed, self.log.confirmed)
        self.log.tell()
        self.deliver_due()

    def deliver_due(self) -> None:
        """What a timer does: each waiting copy is delivered, once."""
        log = self.log
        stored = [each for each in log.records if isinstance(each, Stored)]
        delivered = {each.of for each in stored if each.of is not None}
        for each in log.records[: log.confirmed]:
            if not isinstance(each, Stored) or not each.topic.startswith("SCHEDULE"):
                continue
            if each.run not in delivered and self.chance.random() < 0.7:
                record = Record(each.data, 0, len(each.data))
                due = due_record(record, now_ms=1, store_host_ipv6=False)
                log.records.append(Stored(due.topic, due.queue_id, due.record, of=each.run))

    # ------------------------------------------------------------------------------ for SendBacks

    def claimed(self, key: GroupQueue, claim: Claim) -> OffsetWriter:
        return self.term

    store_host_ipv6 = False

    def append_copies(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        numbers: Sequence[ProducerRun],
        *,
        reserve: bool = False,
    ) -> None:
        if self.chance.random() < self.breaks_appends:
            raise self.chance.choice((Crash(), NotWritable("the disk is full")))
        for data, run in zip(records, numbers, strict=True):
            offset = len(self.log.queue(topic, queue_id))
            self.windows.appended(topic, queue_id, [run], offset, 1)
            self.log.records.append(Stored(topic, queue_id, data, run))

    publishing = contextlib.nullcontext()

    async def read_original(self, key: GroupQueue, offset: int) -> bytes | None:
        queue = self.log.queue(key.topic, key.queue_id)
        return queue[offset].data if offset < len(queue) else None

    async def prepare(self, group: str) -> None:
        return None

    async def complete(self) -> None:
        with contextlib.suppress(AerobeeError):
            await self.send_backs.complete()

    # ------------------------------------------------------------------------------ the group

    def begin_session(self) -> None:
        """A member that knows only the committed offsets, including the last member's last ones: no
        member gets a queue before those."""
        self.position = {key: self.begin_of(key) for key in (ORIGINAL, RETRIES)}
        self.unfinished: dict[GroupQueue, set[int]] = {ORIGINAL: set(), RETRIES: set()}

    def begin_of(self, key: GroupQueue) -> int:
        standing = self.term.standing(key)
        return 0 if standing is None else standing.offset

    def committed(self, key: GroupQueue) -> int:
        standing = self.state.standing(key)
        return 0 if standing is None else standing.offset

    def visible(self, key: GroupQueue) -> list[Stored]:
        confirmed = self.log.records[: self.log.confirmed]
        return [
            each
            for each in confirmed
            if isinstance(each, Stored) and (each.topic, each.queue_id) == key[1:]
        ]

    async def consume(self, *, may_fault: bool) -> None:
        """A member fetches, handles what it has, and commits; or dies, and another one begins."""
        if may_fault and self.chance.random() < 0.1:
            self.begin_session()
        for key in (ORIGINAL, RETRIES):
            self.fetch(key)
            for offset in sorted(self.unfinished[key]):
                if may_fault and self.chance.random() < 0.5:
                    continue
                await self.handle(key, offset, may_fault=may_fault)
            lowest = min(self.unfinished[key], default=self.position[key])
            if self.chance.random() < 0.5 and lowest > self.committed(key):
                self.term.change(key, Change(ChangeKind.COMMIT, lowest, NO_LEASE), "c")

    def fetch(self, key: GroupQueue) -> None:
        finished = self.state.finished_beyond(key)
        for offset in range(self.position[key], len(self.visible(key))):
            self.position[key] = offset + 1
            if finished is None or offset not in finished:
                self.unfinished[key].add(offset)
                name, attempts = self.message(key, offset)
                JUDGE.attempts_rise(attempts, self.sent_back.get(name, -1), name)

    def message(self, key: GroupQueue, offset: int) -> tuple[str, int]:
        data = self.visible(key)[offset].data
        record = Record(data, 0, len(data))
        return bytes(record.body).decode(), record.reconsume_times

    async def handle(self, key: GroupQueue, offset: int, *, may_fault: bool) -> None:
        name, attempts = self.message(key, offset)
        if self.failures_of[name] <= attempts:
            self.succeeded.add(name)
            self.unfinished[key].discard(offset)
            return
        failure = Failure(offset, 0, "ValueError", f"cannot read {name}")
        (answer,) = await self.send_backs.send_back(Sender(key, NOBODYS, "c"), [failure])
        self.tell(f"{name} of {key.topic} {offset} is sent back, {answer.error or answer.way}")
        if may_fault and self.chance.random() < 0.15:
            return  # the answer is lost
        if self.is_success(answer):
            self.unfinished[key].discard(offset)
            self.sent_back[name] = max(attempts, self.sent_back.get(name, -1))

    def is_success(self, answer: SentBackMessage) -> bool:
        if answer.error is not None:
            return False
        if answer.done is not None and not answer.done.done():
            # The member waits for it; the log advances meanwhile.
            self.writer.flush()
            self.confirm(len(self.log.records))
            self.log.flushed = len(self.log.records)
            self.log.tell()
        return answer.done is None or (answer.done.done() and answer.done.exception() is None)

    # ------------------------------------------------------------------------------ the judge

    def judge(self) -> None:
        """At the end, by the log and by what the group handled."""
        copies: Counter[tuple[str, int]] = Counter()
        dead: Counter[str] = Counter()
        for each in self.log.records:
            if isinstance(each, Stored) and each.run is not None:
                record = Record(each.data, 0, len(each.data))
                name = bytes(record.body).decode()
                copies[name, record.reconsume_times] += 1
                dead[name] += each.topic.startswith(DEAD_LETTER_PREFIX)
        self.copies, self.dead = copies.total(), dead.total()
        if self.state.open_copies and self.term.owed_copies():
            JUDGE.broken("copies of failed messages are never written")
        for name, failures in self.failures_of.items():
            JUDGE.keeps(dead[name] > 0 if failures > RETRIES_MAX else name in self.succeeded, name)
        for place, count in copies.items():
            JUDGE.once((place,) if count > 1 else (), place, f"the copy of {place}")


def encoded(name: str) -> bytes:
    return encode_record(
        topic=b"t",
        body=name.encode(),
        properties=b"",
        born_timestamp_ms=1,
        born_host=HOST,
        store_host_ipv6=False,
    )
