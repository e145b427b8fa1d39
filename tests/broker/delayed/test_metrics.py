"""What is measured of messages that wait."""

from __future__ import annotations

from typing import Any

from aerobee.broker.delayed.feature import Delays
from aerobee.broker.delayed.figures import DelayFigures
from tests.support.delayed import SetClock, send_later, settled, until_delivered

HOUR_MS = 3_600_000


async def values(broker: Any) -> dict[str, Any]:
    delays = broker.feature(Delays)
    # Made anew each time: it counts once in half a minute.
    made = DelayFigures(
        delays.feeder,
        delays.mover,
        delays.waiting,
        delays.counts,
        delays.copies,
        broker.clock,
        progress=delays.progress,
        latency_ms=delays.latency_ms,
        topics_max=10,
    )
    return {family.name: family.rows for family in await made.families()}


async def test_what_waits_is_counted_by_topic_and_what_was_late_is_seen(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock)
    now_ms = clock.now_ms()
    send_later(broker, "t", [b"1", b"2", b"3"], deliver_ms=now_ms + HOUR_MS)
    send_later(broker, "t", [b"4"], deliver_ms=now_ms + 3 * HOUR_MS)
    send_later(broker, "t", [b"5", b"6"], level=18)
    await settled(broker)
    found = await values(broker)
    assert dict(found["rocketmq_timing_messages"]) == {("_other",): 0, ("t",): 4}
    levels = dict(found["aerobee_delay_level_messages"])
    assert (levels["18",], sum(levels.values())) == (2, 2)
    assert found["rocketmq_timer_enqueue_lag"] == [((), 0)]
    assert found["rocketmq_timer_dequeue_lag"] == [((), 0)]
    clock.ahead_ms += HOUR_MS + 2_000
    late = await values(broker)
    assert late["rocketmq_timer_dequeue_lag"][0][1] in (0, 3), "unless they are delivered by now"
    await until_delivered(broker, "t", 3)
    await settled(broker)
    found = await values(broker)
    assert dict(found["rocketmq_timing_messages"]) == {("_other",): 0, ("t",): 1}
    ((_, latency),) = found["rocketmq_delay_message_latency"]
    assert sum(latency.counts) == 3
    assert latency.total >= 3 * 2_000
    assert found["aerobee_delayed_messages_given_up_total"] == [((), 0)]
