"""Damages to what was acknowledged and delivered: resets, and messages that the log never had."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.records import body_of
from aerobee.broker.offsets.entries import JOURNAL_TOPIC, OffsetEntry, decode_body, offset_text
from aerobee.broker.offsets.merge import ChangeKind
from aerobee.client_core import ClusterConnection, Offsets
from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.record import SYSFLAG_TRANSACTION_PREPARED
from aerobee.store.format.record_layout import BODY_AT, BODY_LENGTH_AT, SYS_FLAG_AT
from tests.offset_audit.damages.base_store import GEOMETRY, TOPICS
from tests.offset_audit.damages.damage import Expected, StoreDamage
from tests.offset_audit.damages.store_damages import (
    change_offsets,
    make_earlier,
    newest_store_ms,
    place,
    places,
)
from tests.offset_audit.damages.waiting_damages import CONFIG, append_record
from tests.support.real_brokers import BrokerProcess, RouteServer

MINUTE_MS = 60_000
TOO_MANY = 50


def lose_messages(root: Path) -> None:
    """Three records become something that no queue has: the log is sound, and lacks them."""
    for queue_offset in (210, 211, 212):
        record = place(root, "orders", 0, queue_offset)
        prepared = record.number(SYS_FLAG_AT, ">i") | SYSFLAG_TRANSACTION_PREPARED
        record.write(SYS_FLAG_AT, struct.pack(">i", prepared))


def reset_back(root: Path) -> None:
    """By a client, at a broker that has the store."""
    asyncio.run(_reset(root, "billing", MessageQueue("orders", root.name, 2), 300))


async def _reset(root: Path, group: str, queue: MessageQueue, offset: int) -> None:
    broker = await BrokerProcess(root.name, root, TOPICS, GEOMETRY).start()
    nameserver = await RouteServer([broker]).start()
    try:
        async with ClusterConnection(nameserver.address) as connection:
            await Offsets(connection, timeout_ms=10_000).reset(group, {queue: offset})
    finally:
        await nameserver.stop()
        await broker.end()


def deliver_too_early(root: Path) -> None:
    """A member commits messages that nobody has stored; minutes later others get their offsets."""
    last = _last_commit(root, "billing", "orders", 3)
    end = last.change.offset + TOO_MANY
    clock = ManualClock(newest_store_ms(root) + 1_000)
    early = last._replace(change=last.change._replace(offset=end), timestamp_ms=clock.now_ms())
    store = MessageStore.open(RealDisk(root), clock, CONFIG)
    try:
        append_record(store, clock, JOURNAL_TOPIC, JOURNAL_QUEUE, body_of([offset_text(early)]))
        clock.advance_ms(2 * MINUTE_MS)
        for _ in range(TOO_MANY):
            append_record(store, clock, "orders", 3, b"later")
    finally:
        store.close()
    make_earlier(root, 3 * MINUTE_MS)
    change_offsets(lambda table: table["orders@billing"].update({"3": end}))(root)


def _last_commit(root: Path, group: str, topic: str, queue_id: int) -> OffsetEntry:
    """Of what a member committed: an image, too, may say the offset, after the commit."""
    found: list[OffsetEntry] = []
    for one in places(root):
        if one.topic == JOURNAL_TOPIC:
            body = one.read(BODY_AT, one.number(BODY_LENGTH_AT, ">i"))
            found += [entry for entry in decode_body(body) if isinstance(entry, OffsetEntry)]
    commits = [entry for entry in found if entry.change.kind is ChangeKind.COMMIT]
    return [entry for entry in commits if entry.key == (group, topic, queue_id)][-1]


HISTORY: tuple[StoreDamage, ...] = (
    StoreDamage(
        "lost-messages",
        lose_messages,
        Expected("GAP", "CRITICAL", "orders", 0, None, 3, "queue offsets 210 to 212"),
    ),
    StoreDamage(
        "reset-back",
        reset_back,
        Expected("RESET", "WARNING", "orders", 2, "billing", 100, "from offset 400 back to 300"),
    ),
    StoreDamage(
        "delivered-too-early",
        deliver_too_early,
        Expected("TIER_IMBALANCE", "CRITICAL", "orders", None, "billing", TOO_MANY, "1650"),
    ),
)
