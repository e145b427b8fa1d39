"""Messages that failed and are lost on their way, and dead letters that come from nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.records import body_of
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.sent_back import Copied, SentBack, out_of_turn_document
from aerobee.broker.retries.copies import copy_of, run_of
from aerobee.broker.timers.entries import (
    TIMER_JOURNAL_TOPIC,
    Acted,
    Intent,
    IntentKind,
    Source,
    entry_text,
)
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch, number_batch
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delayed_records import Delay, Moved, due_record
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_view import Record
from aerobee.store.format.tags import TagsCodes
from tests.offset_audit.damages.damage import Expected, StoreDamage
from tests.offset_audit.damages.store_damages import make_earlier, newest_store_ms, place
from tests.offset_audit.damages.waiting_damages import CONFIG, append_record

GROUP = "billing"
RETRY_TOPIC = f"%RETRY%{GROUP}"
DEAD_LETTERS = f"%DLQ%{GROUP}"
MINUTE_MS = 60_000
LEVEL = 2


class FailedMessages:
    """Does what a master does with messages that its members send back, step by step."""

    def __init__(self, root: Path, store: MessageStore, clock: ManualClock) -> None:
        self._root = root
        self._store = store
        self._clock = clock
        self._number = 0
        self._waiting = 0

    def send_back(self, offset: int, *, is_dead: bool = False, copies: int = 1) -> Record:
        """A message of orders/0; returns the copy."""
        now_ms = self._clock.now_ms()
        way = Death(GROUP, 1, now_ms, "ValueError", "no") if is_dead else Delay(level=LEVEL)
        key = GroupQueue(GROUP, "orders", 0)
        entry = SentBack(key, offset, self._number, way, now_ms, "m")
        self._number += 1
        self._journal(out_of_turn_document(entry))
        original = place(self._root, "orders", 0, offset)
        record = Record(original.read(0, original.number(0, ">i")))
        moved = copy_of(record, entry, store_host_ipv6=False)
        for _ in range(copies):
            self._append(moved, run_of(entry))
        self._journal(out_of_turn_document(Copied(self._number, now_ms)))
        return Record(moved.record)

    def deliver(self, copy: Record, *, times: int = 1) -> None:
        """The oldest copy that waits; the others follow in their order."""
        now_ms = self._clock.now_ms()
        source = Source(LEVEL, self._waiting, now_ms)
        intent = Intent(IntentKind.MOVE, self._waiting, (source,), (), 0, now_ms)
        self._waiting += 1
        for entry in (intent, Acted(self._waiting)):
            body = body_of([entry_text(entry)])
            append_record(self._store, self._clock, TIMER_JOURNAL_TOPIC, 0, body)
        for _ in range(times):
            self._append(due_record(copy, now_ms=now_ms, store_host_ipv6=False))

    def write_letter(self, properties: Mapping[str, str]) -> None:
        append_record(self._store, self._clock, DEAD_LETTERS, 0, b"stray", properties)

    def _journal(self, document: dict[str, object]) -> None:
        body = body_of([json.dumps(document)])
        append_record(self._store, self._clock, JOURNAL_TOPIC, JOURNAL_QUEUE, body)

    def _append(self, moved: Moved, run: ProducerRun | None = None) -> None:
        batch = check_batch(
            moved.record,
            [len(moved.record)],
            topic=moved.topic,
            limits=BatchLimits(),
            store_host_ipv6=False,
            tags=TagsCodes(),
        )
        if run is not None:
            number_batch(batch, (run,))
        self._store.append(batch, queue_id=moved.queue_id)
        self._store.confirm(self._store.appended_end)


@contextmanager
def failed_messages(root: Path) -> Iterator[FailedMessages]:
    """Of a store that was stopped; it goes on for a minute more when all is done."""
    make_earlier(root, 2 * MINUTE_MS)
    _add_topics(root)
    clock = ManualClock(newest_store_ms(root) + 1_000)
    store = MessageStore.open(RealDisk(root), clock, CONFIG)
    try:
        yield FailedMessages(root, store, clock)
        clock.advance_ms(MINUTE_MS)
        append_record(store, clock, "orders", 0, b"later")
    finally:
        store.close()


def _add_topics(root: Path) -> None:
    path = root / "config" / "topics.json"
    document = json.loads(path.read_bytes())
    table = document["topicConfigTable"]
    for name in (RETRY_TOPIC, DEAD_LETTERS):
        queues = {"readQueueNums": 1, "writeQueueNums": 1}
        table[name] = {**table["orders"], "topicName": name, **queues}
    path.write_text(json.dumps(document))


def fail_and_come_again(root: Path) -> None:
    """Nothing is wrong: one came again, one waits, one is a dead letter."""
    with failed_messages(root) as failed:
        failed.deliver(failed.send_back(390))
        failed.send_back(391, is_dead=True)
        failed.send_back(392)


def lose_copy(root: Path) -> None:
    """The journal says that both were copied."""
    with failed_messages(root) as failed:
        failed.deliver(failed.send_back(390))
        failed.send_back(391, copies=0)


def copy_twice(root: Path) -> None:
    """Both under the one number that the journal has."""
    with failed_messages(root) as failed:
        failed.deliver(failed.send_back(390))
        failed.send_back(391, copies=2)


def lose_delivery(root: Path) -> None:
    """The timer journal says that both were moved."""
    with failed_messages(root) as failed:
        first, second = failed.send_back(390), failed.send_back(391)
        failed.deliver(first)
        failed.deliver(second, times=0)


def deliver_twice(root: Path) -> None:
    """The timer journal says that it was moved once."""
    with failed_messages(root) as failed:
        failed.deliver(failed.send_back(390))
        failed.deliver(failed.send_back(391), times=2)


def write_letters(root: Path) -> None:
    """One of two names an offset that its queue never had, and a place that the log has."""
    with failed_messages(root) as failed:
        failed.send_back(390, is_dead=True)
        properties = {
            "RETRY_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": f"7F00000100002A9F{2_000:016X}",
            "ORIGIN_QUEUE_ID": "0",
            "ORIGIN_QUEUE_OFFSET": "4711",
        }
        failed.write_letter(properties)


def write_letter_without_origin(root: Path) -> None:
    with failed_messages(root) as failed:
        failed.write_letter({})


FAILED: tuple[StoreDamage, ...] = (
    StoreDamage(
        "retry-never-copied",
        lose_copy,
        Expected("RETRY_LOST", "CRITICAL", None, None, GROUP, 1, "orders/0, queue offset 391"),
    ),
    StoreDamage(
        "retry-never-arrived",
        lose_delivery,
        Expected("RETRY_LOST", "CRITICAL", None, None, GROUP, 1, "SCHEDULE_TOPIC_XXXX/1"),
    ),
    StoreDamage(
        "retry-copied-twice",
        copy_twice,
        Expected(
            "RETRY_TWICE",
            "ERROR",
            None,
            None,
            GROUP,
            1,
            "and SCHEDULE_TOPIC_XXXX/1, queue offset 2",
        ),
    ),
    StoreDamage(
        "retry-delivered-twice",
        deliver_twice,
        Expected(
            "RETRY_TWICE", "ERROR", None, None, GROUP, 1, f"and {RETRY_TOPIC}/0, queue offset 2"
        ),
    ),
    StoreDamage(
        "dead-letter-of-nowhere",
        write_letters,
        Expected("DEAD_LETTER_ORIGIN", "ERROR", DEAD_LETTERS, 0, GROUP, 1, "offset 4711"),
    ),
    StoreDamage(
        "dead-letter-without-origin",
        write_letter_without_origin,
        Expected("DEAD_LETTER_ORIGIN", "WARNING", DEAD_LETTERS, 0, GROUP, 1, "does not name"),
    ),
)
