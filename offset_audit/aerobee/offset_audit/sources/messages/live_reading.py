"""Messages pulled from live brokers by one executor: frames of many records into Arrow batches.

While one frame is decoded the next is on its way. A broker that fails is asked again, and its
slaves too, until the user's time is over; a slave's word that a message is not there is never taken
alone.

Owns: one event loop and its connections, in a thread of their own, for as long as it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from aerobee.offset_audit.sources.messages.columns import Expected, RecordColumns
from aerobee.offset_audit.sources.messages.losses import LossRule, losses_of
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import Window
from aerobee.offset_audit.sources.messages.puller import Frame, Puller
from aerobee.offset_audit.sources.messages.ranges import OffsetRange
from aerobee.store_format.record_arrays import byte_field, read_field
from aerobee.store_format.record_hops import hop
from aerobee.store_format.record_layout import QUEUE_OFFSET_AT


@dataclass(frozen=True, slots=True)
class LiveReading:
    """See Reading: these ranges, one after the other."""

    options: MessageOptions
    ranges: tuple[OffsetRange, ...]
    window: Window

    def batches(self) -> Iterator[Any]:
        rule = LossRule(self.options.fail_on_data_loss)
        with (
            ThreadPoolExecutor(1, thread_name_prefix="pull") as thread,
            asyncio.Runner() as runner,
        ):
            puller = thread.submit(Puller, self.options, self.ranges).result()

            def pull() -> Frame | None:
                return runner.run(puller.next())

            coming = thread.submit(pull)
            try:
                while (frame := coming.result()) is not None:
                    coming = thread.submit(pull)
                    rule.apply(frame.losses)
                    batch = self._batch(frame, rule)
                    if batch is not None:
                        yield batch
            finally:
                coming.exception()
                thread.submit(lambda: runner.run(puller.close())).result()
                thread.submit(runner.close).result()

    def _batch(self, frame: Frame, rule: LossRule) -> Any | None:
        """The frame's records that lie in its range, if there are any."""
        starts, ends = hop(frame.records)
        offsets = read_field(byte_field(frame.records, ">i8"), starts + QUEUE_OFFSET_AT)
        inside = (offsets >= frame.begin) & (offsets < frame.end)
        starts, ends, offsets = starts[inside], ends[inside], offsets[inside]
        if len(offsets) != frame.end - frame.begin:
            missing = np.setdiff1d(np.arange(frame.begin, frame.end), offsets)
            rule.apply(losses_of(frame.queue, missing, "the broker skipped them"))
        if not len(starts):
            return None
        records = RecordColumns(
            frame.records,
            starts,
            ends,
            Expected(
                frame.queue.broker_name, (frame.queue.topic,), None, frame.queue.queue_id, offsets
            ),
        )
        columns = self.options.columns
        sound = records.sound(check_bodies=columns.check_bodies)
        rule.apply(losses_of(frame.queue, offsets[~sound], "damaged"))
        records.only(sound)
        if not self.window.is_all:
            times = records.store_ms
            records.only((times >= self.window.first_ms) & (times <= self.window.last_ms))
        if columns.body:
            fine = records.decompressible()
            damaged = records.expected.queue_offsets[~fine]
            rule.apply(losses_of(frame.queue, damaged, "not decompressible"))
            records.only(fine)
        return records.batch(columns) if records.count else None
