"""The log keeps the originals of messages that were sent back until their copies are in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.feature import Progress
from aerobee.broker.offsets.sent_back import Resend, SentBack
from aerobee.broker.retries.feature import Retries
from aerobee.runtime.clock import SystemClock
from aerobee.store.format.delayed_records import Delay
from tests.broker.retention.test_cleaning import STORE, clean, expire, fill, minimum
from tests.broker.retries.test_sending_back import waiting
from tests.support.retention import roomy_disk
from tests.support.waiting import until

KEY = GroupQueue("g", "t", 0)


async def owe(broker: Any, *offsets: int) -> None:
    """Send messages back, and do not append their copies."""
    writer = broker.feature(Progress).journal.writer()
    now_ms = SystemClock().now_ms()
    for offset in offsets:
        await writer.send_back([SentBack(KEY, offset, writer.next_copy, Delay(level=3), now_ms)])


async def test_only_what_is_at_or_after_the_oldest_original_stays(
    start_broker: Any, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    await fill(broker, 23)
    await owe(broker, 17, 12)
    expire(root)
    kept = await clean(broker)
    assert kept.removed_segments == 2, "segments of 5 messages"
    assert "sent back" in kept.kept_because
    assert 5 < await minimum(broker) <= 12
    broker.feature(Retries).send_backs.wake()
    await until(lambda: not broker.feature(Progress).state.open_copies)
    assert (await clean(broker)).removed_segments > 0
    assert await minimum(broker) > 12


async def test_what_is_sent_back_while_the_log_is_searched_is_searched_for_again(
    start_broker: Any, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    broker = await start_broker(store=STORE, disk=roomy_disk(root))
    await fill(broker, 23)
    expire(root)
    (hold,) = broker.feature(Retries).holds
    ask = hold.need

    async def need(*args: Any) -> object:
        answer = await ask(*args)
        if not broker.feature(Progress).state.open_copies:
            await owe(broker, 2)
        return answer

    hold.need = need
    kept = await clean(broker)
    assert kept.removed_segments == 0
    assert "sent back" in kept.kept_because


async def test_a_copy_for_a_topic_that_is_gone_holds_up_no_other_copy(start_broker: Any) -> None:
    """The letter's way was decided before its topic was deleted."""
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"0", b"1")
    writer, now_ms = broker.feature(Progress).journal.writer(), SystemClock().now_ms()
    for offset, way in ((0, Resend("gone", 0, 3)), (1, Delay(level=3))):
        await writer.send_back([SentBack(KEY, offset, writer.next_copy, way, now_ms)])
    broker.feature(Retries).send_backs.wake()
    await until(lambda: not writer.owed_copies())
    await until(lambda: not broker.feature(Progress).state.open_copies)


async def test_a_copy_is_never_made_of_a_message_of_its_topics_next_life(
    start_broker: Any,
) -> None:
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"0")
    await owe(broker, 0)
    writer = broker.feature(Progress).journal.writer()
    (entry,) = writer.owed_copies()
    await writer.end_topic("t", SystemClock().now_ms(), lease_epoch=0)
    await broker.send_bodies("t", 0, b"new")
    assert not writer.owes(entry)
    await broker.feature(Retries).send_backs.complete()
    assert waiting(broker, 3) == []
