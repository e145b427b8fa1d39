"""Messages of Apache's services that wait for ever, and replicas that have drifted apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from aerobee.broker.journal.records import body_of
from aerobee.broker.timers.entries import (
    TIMER_JOURNAL_TOPIC,
    Acted,
    GivenUp,
    Intent,
    IntentKind,
    Source,
    TimerEntry,
    entry_text,
)
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.epoch_file import EPOCH_FILE, encode_epochs
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_record
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.transaction_records import ASIDE_TOPIC
from tests.offset_audit.damages.base_store import GEOMETRY
from tests.offset_audit.damages.damage import Expected, StoreDamage
from tests.offset_audit.damages.store_damages import (
    change_body_and_checksum,
    make_earlier,
    newest_store_ms,
)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
WAIT_MS = 90_000
"""A half message is due after six seconds, a delayed one of level 2 after five, the timer after
two; beyond that the audit waits for a minute."""
EARLIER_MS = WAIT_MS + 1_000
"""By so much all else is moved: messages of the future would be another damage."""
CONFIG = StoreConfig(
    disk_free_bytes_min=0,
    # How full the disk of this machine is must not decide what a test sees.
    retention=RetentionConfig(enabled=False),
    **GEOMETRY,  # type: ignore[arg-type]
)


def wait_for_ever(root: Path, topic: str, queue_id: int, properties: dict[str, str]) -> None:
    """A message of a system topic, and a while later another one that shows that the broker was
    alive all the time."""
    make_earlier(root, EARLIER_MS)
    clock = ManualClock(newest_store_ms(root) + 1_000)
    store = MessageStore.open(RealDisk(root), clock, CONFIG)
    try:
        append_record(store, clock, topic, queue_id, b"waits", properties)
        clock.advance_ms(WAIT_MS)
        append_record(store, clock, "orders", 0, b"waits")
    finally:
        store.close()


def append_record(
    store: MessageStore,
    clock: ManualClock,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """One more message, confirmed."""
    record = encode_record(
        topic=topic.encode(),
        body=body,
        properties=encode_properties(dict(properties)),
        born_timestamp_ms=clock.now_ms(),
        born_host=HostAddress.parse("127.0.0.1:50000"),
    )
    batch = check_batch(
        record,
        [len(record)],
        topic=topic,
        limits=BatchLimits(),
        store_host_ipv6=False,
        tags=TagsCodes(),
    )
    store.append(batch, queue_id=queue_id)
    store.confirm(store.appended_end)


def never_resolve(root: Path) -> None:
    """Nobody commits or rolls back; the id is the transaction's."""
    wait_for_ever(
        root,
        HALF_TOPIC,
        0,
        {"UNIQ_KEY": "7F0000010000000000000000000000AA", "REAL_TOPIC": "orders", "REAL_QID": "0"},
    )


def set_aside(root: Path) -> None:
    """No producer ended it, and no operator has yet."""
    wait_for_ever(
        root,
        ASIDE_TOPIC,
        0,
        {"UNIQ_KEY": "7F0000010000000000000000000000BB", "REAL_TOPIC": "orders", "REAL_QID": "0"},
    )


def never_deliver_delayed(root: Path) -> None:
    """Delay level 2, five seconds."""
    properties = {"DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    wait_for_ever(root, SCHEDULE_TOPIC, 1, properties)


def never_deliver_timer(root: Path) -> None:
    """Due two seconds after it was stored."""
    due_ms = newest_store_ms(root) + 3_000 - EARLIER_MS
    properties = {"TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    wait_for_ever(root, TIMER_TOPIC, 0, properties)


def give_up_delayed(root: Path) -> None:
    """One that was delivered, and one that its broker set aside as the timer journal has it."""
    make_earlier(root, EARLIER_MS)
    clock = ManualClock(newest_store_ms(root) + 1_000)
    store = MessageStore.open(RealDisk(root), clock, CONFIG)
    properties = {"DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    try:
        for _ in range(2):
            append_record(store, clock, SCHEDULE_TOPIC, 1, b"waits", properties)
        now_ms = clock.now_ms()
        sources = (Source(2, 0, now_ms), Source(2, 1, now_ms))
        entries: list[TimerEntry] = [
            Intent(IntentKind.MOVE, 7, sources, (), 0, now_ms),
            GivenUp(8, "the record is damaged", now_ms),
            Acted(9),
        ]
        body = body_of([entry_text(entry) for entry in entries])
        append_record(store, clock, TIMER_JOURNAL_TOPIC, 0, body)
        clock.advance_ms(WAIT_MS)
        append_record(store, clock, "orders", 0, b"waits")
    finally:
        store.close()


WAITING: tuple[StoreDamage, ...] = (
    StoreDamage(
        "half-never-resolved",
        never_resolve,
        Expected("HALF_OVERDUE", "ERROR", HALF_TOPIC, 0, None, 1, "00AA"),
    ),
    StoreDamage(
        "transaction-set-aside",
        set_aside,
        Expected("SET_ASIDE", "WARNING", ASIDE_TOPIC, 0, None, 1, "00BB"),
    ),
    StoreDamage(
        "delay-overdue",
        never_deliver_delayed,
        Expected("DELAY_OVERDUE", "ERROR", SCHEDULE_TOPIC, 1, None, 1),
    ),
    StoreDamage(
        "timer-overdue",
        never_deliver_timer,
        Expected("TIMER_OVERDUE", "ERROR", TIMER_TOPIC, 0, None, 1),
    ),
    StoreDamage(
        "delay-given-up",
        give_up_delayed,
        Expected("GIVEN_UP", "ERROR", SCHEDULE_TOPIC, 1, None, 1, "offset 1, for topic orders"),
    ),
)


def write_epochs(root: Path, second_epoch_at: int) -> None:
    (root / EPOCH_FILE).write_bytes(encode_epochs([(1, 0), (2, second_epoch_at)]))


def differ_in_epochs(root: Path, other: Path) -> None:
    write_epochs(root, 300_000)
    write_epochs(other, 310_000)


def differ_in_data(_root: Path, other: Path) -> None:
    change_body_and_checksum(other)
