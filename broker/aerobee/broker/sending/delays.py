"""PURE: which of the clients' batches arrive later, and where they wait until then.

Limits, permissions and queues were checked for the topic that the client named: the records made
here go to system topics, to which no client can send. A message without a delay, or with a time in
the past, is stored unchanged. A batch is in one queue, so all of its messages wait in the same one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchFault, BatchIllegal
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.delayed_records import (
    TIMER_TOPIC,
    Delay,
    DelayIllegal,
    DelayRules,
    may_wait,
    only_times,
    requested_delay,
    timed_properties,
    waiting_properties,
    waiting_queue,
)
from aerobee.store.format.properties import NAME_END, VALUE_END
from aerobee.store.format.record_layout import RecordIllegal
from aerobee.store.format.record_rewrite import rewrite_batch

_REQUEST: Final = re.compile(
    VALUE_END + b"(?:DELAY|TIMER_DELAY_SEC|TIMER_DELAY_MS|TIMER_DELIVER_MS)" + NAME_END
)


class TimerMemory(Protocol):
    """What waits in the timer queue; implemented in `timers.record_rows.HandedTimers`."""

    def stored(
        self, topic: str, batch: CheckedBatch, due_ms: Sequence[int], appended: Appended
    ) -> None:
        """A batch for `topic` has been appended to the timer queue, nothing in it is a recall."""
        ...


class WaitingBatch(NamedTuple):
    """Records for one queue of a system topic, in order."""

    topic: str
    queue_id: int
    records: bytes
    """Concatenated."""
    sizes: list[int]
    deliver_ms: list[int]
    """When each is due (Unix ms). Empty for a delay level, which counts from the store time."""


def may_ask_for_delay(joined: bytes) -> bool:
    """Whether any message might, given their properties, each after VALUE_END; False is certain."""
    # All property names of a request contain these letters.
    return b"DEL" in joined and _REQUEST.search(joined) is not None


def waiting_batch(
    batch: CheckedBatch,
    queue_id: int,
    *,
    now_ms: int,
    rules: DelayRules,
    waits_if_past: bool,
) -> WaitingBatch | None:
    """Where a batch for `queue_id` waits; None: it is stored in that queue unchanged.

    A resent batch is looked up where it would wait. With `waits_if_past` that does not depend on
    how late it comes: messages whose time has passed wait nevertheless, and are due at once.

    Raises BatchIllegal: a record asks for an impossible delay, has no room for the properties it
    needs to wait, or would wait in a queue other than the first record's.
    """
    if not may_ask_for_delay(batch.properties.joined):
        return None
    usual = _waiting_for_times(batch, queue_id, now_ms=now_ms, rules=rules)
    if usual is not None:
        return usual
    delays = [
        _delay_of(index, properties, now_ms, rules) if may_wait(sys_flag) else None
        for index, (properties, sys_flag) in enumerate(
            zip(batch.properties, batch.sys_flags.tolist(), strict=True)
        )
    ]
    if not any(
        delay and (delay.level or waits_if_past or delay.deliver_ms > now_ms) for delay in delays
    ):
        return None
    first = delays[0]
    for index, delay in enumerate(delays):
        if first is None or delay is None or delay.level != first.level:
            raise _of_another_kind(index)
    assert first is not None, "all wait in one queue"
    properties: list[bytes] = []
    deliver_ms: list[int] = []
    for index, delay in enumerate(delays):
        assert delay is not None, "all wait in one queue"
        if not delay.level:
            if delay.deliver_ms < now_ms:
                # The original due time no longer matters.
                delay = Delay(deliver_ms=now_ms)
            deliver_ms.append(delay.deliver_ms)
        try:
            properties.append(
                waiting_properties(
                    batch.properties[index], delay, topic=batch.topic, queue_id=queue_id
                )
            )
        except RecordIllegal as error:
            raise _no_room(index, error) from None
    topic, waits_in = waiting_queue(first)
    records, sizes = rewrite_batch(batch, topic=topic.encode(), properties=properties)
    return WaitingBatch(topic, waits_in, records, sizes, deliver_ms)


def _waiting_for_times(
    batch: CheckedBatch, queue_id: int, *, now_ms: int, rules: DelayRules
) -> WaitingBatch | None:
    """The usual batch, at a third of the price: every message waits for a time that comes. None
    says nothing."""
    times = only_times(batch.properties)
    if (
        times is None
        or min(times) <= now_ms
        or max(times) - now_ms > rules.delay_ms_max
        or not all(map(may_wait, set(batch.sys_flags.tolist())))
    ):
        return None
    properties = timed_properties(batch.properties, times, topic=batch.topic, queue_id=queue_id)
    if properties is None:
        return None
    records, sizes = rewrite_batch(batch, topic=TIMER_TOPIC.encode(), properties=properties)
    return WaitingBatch(TIMER_TOPIC, 0, records, sizes, times)


def _delay_of(index: int, properties: bytes, now_ms: int, rules: DelayRules) -> Delay | None:
    try:
        return requested_delay(properties, now_ms, rules)
    except DelayIllegal as error:
        raise BatchIllegal(BatchFault.DELAY, index, str(error)) from None


def _of_another_kind(index: int) -> BatchIllegal:
    return BatchIllegal(
        BatchFault.DELAY,
        index,
        "the messages of the batch would wait in different queues; send those without a delay, "
        "those of each delay level and those with a time in batches of their own",
    )


def _no_room(index: int, error: RecordIllegal) -> BatchIllegal:
    return BatchIllegal(
        BatchFault.PROPERTIES_TOO_LARGE,
        index,
        f"with the properties that it needs to wait, {error}",
    )
