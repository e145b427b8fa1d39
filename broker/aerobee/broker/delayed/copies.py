"""The copies that an intent appends: made from waiting records, and put into the log.

Owns: turning sources into batches. A copy's destination follows from its record alone, so that
every master finds it where the last one put it. A source that cannot be copied is given up with a
reason: its record is damaged, or its topic is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from aerobee.broker.delayed.waiting_log import queue_name
from aerobee.broker.retries.topics import make_retry_topic
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.timers.acts import Act, Destination, producer_runs
from aerobee.broker.timers.entries import IntentKind, Source
from aerobee.domain.names import is_retry_topic
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import IllegalName, MessageTooLarge
from aerobee.runtime.log import log_event
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.delayed_records import (
    TIMER_TOPIC,
    Moved,
    NotDelayed,
    due_record,
    retimed_record,
    rolled_record,
)
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store.format.record_view import Record

log = logging.getLogger(__name__)

NOWHERE = Destination("", -1)
GiveUp = Callable[[int, str], object]
"""Called with the number of an act that cannot be carried out, and the reason."""


@dataclass(slots=True)
class Copy:
    """The result for one source: a record for its destination, or the `reason` why none can be
    made."""

    source: Source
    destination: Destination = NOWHERE
    data: bytes = b""
    reason: str = ""


class Copies:
    """On the loop."""

    def __init__(self, writes: OwnWrites, topics: TopicTable, clock: Clock) -> None:
        self._writes = writes
        self._topics = topics
        self._clock = clock
        self.given_up = 0
        """How many messages were set aside since the start."""

    # ------------------------------------------------------------------------------ making

    def make(
        self, kind: IntentKind, source: Source, data: bytes | None, new_due_ms: int = 0
    ) -> Copy:
        """The copy of the waiting record; None: the log no longer has that record."""
        if data is None:
            return Copy(source, reason="its record is no longer in the log")
        try:
            record = record_of(source, data)
            topic, queue_id, copied = self._moved(kind, record, source, new_due_ms)
        except (RecordCorrupt, RecordIllegal, NotDelayed) as error:
            return Copy(source, reason=str(error))
        destination = Destination(topic, queue_id)
        if topic != TIMER_TOPIC and (reason := self._why_not(topic)):
            return Copy(source, destination, reason=reason)
        return Copy(source, destination, copied)

    def _moved(self, kind: IntentKind, record: Record, source: Source, new_due_ms: int) -> Moved:
        is_ipv6 = self._writes.store_host_ipv6
        if kind is IntentKind.MOVE:
            return due_record(record, now_ms=self._clock.now_ms(), store_host_ipv6=is_ipv6)
        if kind is IntentKind.ROLL:
            return rolled_record(
                record,
                due_ms=source.due_ms,
                now_ms=self._clock.now_ms(),
                store_host_ipv6=is_ipv6,
            )
        return retimed_record(record, due_ms=new_due_ms, store_host_ipv6=is_ipv6)

    def _why_not(self, topic: str) -> str:
        """Permissions and the number of queues do not matter, as in Apache's broker: the sender had
        permission, and a queue returns when the number is raised again."""
        if is_retry_topic(topic):
            # A replica that has just become master may not know the topic yet.
            make_retry_topic(self._topics, topic)
        config = self._topics.get(topic)
        if config is None or topic in self._topics.ending:
            return f"topic {topic} was deleted while it waited"
        if config.has_batch_queues:
            return (
                f"topic {topic} keeps batches as one message each, which this broker cannot write"
            )
        return ""

    # ------------------------------------------------------------------------------ appending

    def append(self, acts: Sequence[Act], copies: Iterable[Copy], give_up: GiveUp) -> None:
        """Append the copies of acts, one batch per destination, under the acts' numbers; acts of
        one destination are adjacent.

        Raises:
            AerobeeError: some are appended, others not.
        """
        data_of = {copy.source: copy for copy in copies}
        with self._writes.publishing:
            for destination, group in groupby(acts, attrgetter("destination")):
                members = list(group)
                for act in members:
                    if reason := data_of[act.source].reason:
                        self._give_up(act, reason, give_up)
                members = [act for act in members if not data_of[act.source].reason]
                self._append_batch(destination, members, data_of, give_up)

    def _append_batch(
        self,
        destination: Destination,
        acts: list[Act],
        data_of: dict[Source, Copy],
        give_up: GiveUp,
    ) -> None:
        while acts:
            records = [data_of[act.source].data for act in acts]
            try:
                self._writes.append_copies(
                    destination.topic,
                    destination.queue_id,
                    records,
                    _runs_of(acts),
                    # Rolling messages on is what allows a full disk to drop a segment.
                    reserve=destination.topic == TIMER_TOPIC,
                )
                return
            except BatchIllegal as error:
                wrong, reason = max(error.index, 0), str(error)
            except (MessageTooLarge, IllegalName) as error:
                if len(acts) > 1:
                    # One by one: at most one of them is the one that is too large.
                    for act in acts:
                        self._append_batch(destination, [act], data_of, give_up)
                    return
                wrong, reason = 0, str(error)
            self._give_up(acts.pop(wrong), reason, give_up)

    def _give_up(self, act: Act, reason: str, give_up: GiveUp) -> None:
        give_up(act.number, reason)
        self.given_up += 1
        topic, queue_id = queue_name(act.source.queue)
        log_event(
            log,
            "a delayed message cannot be delivered and is set aside",
            level=logging.ERROR,
            waited_in=topic,
            queue_id=queue_id,
            offset=act.source.offset,
            topic=act.destination.topic,
            reason=reason,
        )


def record_of(source: Source, data: bytes) -> Record:
    """The waiting record of `source`. Raises RecordCorrupt: it is a different one."""
    record = Record(data, 0, len(data))
    if record.queue_offset != source.offset or record.topic != queue_name(source.queue)[0]:
        raise RecordCorrupt(
            0, f"it is not a record of {queue_name(source.queue)[0]} {source.offset}"
        )
    return record


def _runs_of(acts: Sequence[Act]) -> list[ProducerRun]:
    """The acts' numbers as producer runs, in ascending order."""
    runs: list[ProducerRun] = []
    begin = 0
    for at in range(1, len(acts) + 1):
        if at == len(acts) or acts[at].number != acts[at - 1].number + 1:
            runs += producer_runs(acts[begin].number, at - begin)
            begin = at
    return runs
