"""PURE: which messages of a client's batch arrive later, and where they wait until then.

Limits, rights and queues are those of the topic that the client named, and were checked for it: the
records made here go to system topics, to which no client can send. What asks for no delay, or for a
time that is past, is stored as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.store_format.batch import BatchFault, BatchIllegal
from aerobee.store_format.checked_batch import CheckedBatch
from aerobee.store_format.delayed_records import (
    Delay,
    DelayIllegal,
    DelayRules,
    may_wait,
    requested_delay,
    waiting_record,
)
from aerobee.store_format.producer_number import ProducerRun
from aerobee.store_format.properties import VALUE_END
from aerobee.store_format.record_layout import RecordIllegal
from aerobee.store_format.record_view import Record


@dataclass(slots=True)
class BatchPart:
    """Records of a batch that are stored in one queue, in their order."""

    topic: str
    queue_id: int
    level: int = 0
    """The delay level; 0: they wait for a time, or do not wait."""
    indexes: list[int] = field(default_factory=list)
    """Which records of the batch they are."""
    records: list[bytes] = field(default_factory=list)
    deliver_ms: list[int] = field(default_factory=list)
    """For each one that waits for a time: which (Unix ms). The others' is empty: those with a level
    are due their level's delay after the time at which they are stored."""


def may_ask_for_delay(properties: Sequence[bytes]) -> bool:
    """Whether any message may; False is certain. Costs 0.04 us for each.

    All names that ask for one have these letters: DELAY and TIMER_DELAY_SEC, TIMER_DELAY_MS,
    TIMER_DELIVER_MS.
    """
    return b"DEL" in VALUE_END.join(properties)


def split_delayed(
    batch: CheckedBatch, queue_id: int, *, now_ms: int, rules: DelayRules
) -> list[BatchPart]:
    """Where the records of a batch for `queue_id` go; empty: all to that queue, as they are.

    Raises BatchIllegal: a record asks for a delay that cannot be, or has no room for what it needs
    to wait.
    """
    if not may_ask_for_delay(batch.properties):
        return []
    delays = [
        _delay_of(index, properties, now_ms, rules) if may_wait(sys_flag) else None
        for index, (properties, sys_flag) in enumerate(
            zip(batch.properties, batch.sys_flags.tolist(), strict=True)
        )
    ]
    if not any(delays):
        return []
    parts: dict[tuple[str, int], BatchPart] = {}
    starts = batch.starts.tolist()
    ends = (batch.starts + batch.sizes).tolist()
    for index, delay in enumerate(delays):
        if delay is None:
            name = batch.topic, queue_id
            data = bytes(batch.buffer[starts[index] : ends[index]])
        else:
            try:
                topic, waits_in, data = waiting_record(
                    Record(batch.buffer, starts[index], ends[index]),
                    delay,
                    topic=batch.topic,
                    queue_id=queue_id,
                    store_host_ipv6=batch.store_host_ipv6,
                )
            except RecordIllegal as error:
                raise _no_room(index, error) from None
            name = topic, waits_in
        part = parts.get(name)
        if part is None:
            part = parts[name] = BatchPart(*name, level=0 if delay is None else delay.level)
        part.indexes.append(index)
        part.records.append(data)
        if delay is not None and not delay.level:
            part.deliver_ms.append(delay.deliver_ms)
    return list(parts.values())


def part_numbers(indexes: Sequence[int], runs: Sequence[ProducerRun]) -> list[ProducerRun]:
    """The producers' numbers of some records of a batch; `runs` are those of all, in order."""
    found: list[ProducerRun] = []
    remaining = iter(runs)
    run, begin = next(remaining), 0
    for index in indexes:
        while index >= begin + run.record_count:
            begin += run.record_count
            run = next(remaining)
        sequence = run.first_sequence + index - begin if run.producer_id else 0
        before = found[-1] if found else None
        if before is not None and _goes_on(before, run.producer_id, sequence):
            found[-1] = before._replace(record_count=before.record_count + 1)
        else:
            found.append(ProducerRun(run.producer_id, sequence, 1))
    return found


def _goes_on(run: ProducerRun, producer_id: int, sequence: int) -> bool:
    return run.producer_id == producer_id and (
        not producer_id or run.first_sequence + run.record_count == sequence
    )


def _delay_of(index: int, properties: bytes, now_ms: int, rules: DelayRules) -> Delay | None:
    try:
        return requested_delay(properties, now_ms, rules)
    except DelayIllegal as error:
        raise BatchIllegal(BatchFault.DELAY, index, str(error)) from None


def _no_room(index: int, error: RecordIllegal) -> BatchIllegal:
    return BatchIllegal(
        BatchFault.PROPERTIES_TOO_LARGE,
        index,
        f"with what it needs to wait, {error}",
    )
