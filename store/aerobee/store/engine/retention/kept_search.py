"""From which message on a queue keeps its messages, as its topic wants: by age, by bytes.

    age    the first message stored at or after a time: a binary search
    bytes  the newest messages that together have at most so many bytes: the queue's entries are
           summed once, a limited number in one search, and later only what is new and what goes

Taken on the loop, run on another thread because queue files and log may be cold. A queue that
cannot be read keeps everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.runtime.errors import AerobeeError
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.queues.consume_queue import ConsumeQueue, EntriesRead
from aerobee.store.engine.queues.reading import Int64Array
from aerobee.store.engine.queues.time_search import Boundary, ReadLog, TimeSearch
from aerobee.store.format.consume_queue_entry import PRE_BLANK_SIZE, unpack_entries

ENTRIES_MAX: Final = 65_536
"""How many entries one search sums, and how many it drops; the next one continues."""


@dataclass(frozen=True, slots=True)
class KeptRule:
    """What a topic keeps: what was stored at or after `stored_ms`, and of each queue at most
    `bytes_max` and its newest message; None: all."""

    stored_ms: int | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class SummedBytes:
    """Messages [begin, end) of a queue have so many bytes in the log."""

    begin: int = 0
    end: int = 0
    size: int = 0


class KeptSearch:
    """One queue at one moment; `found` and `summed` are results."""

    def __init__(
        self,
        disk: Disk,
        queue: ConsumeQueue,
        read_log: ReadLog,
        rule: KeptRule,
        summed: SummedBytes,
        *,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        """[loop] `summed`: by the queue's last search; begun anew where entries that it has summed
        may be gone."""
        self.queue = queue
        """Still the queue of its name, unless its topic was deleted meanwhile."""
        self.topic, self.queue_id = queue.topic, queue.queue_id
        self.found = self._served_from = queue.served_from
        """The first message that is kept; never before the present one."""
        self.trouble: AerobeeError | OSError | None = None
        """Why nothing was found."""
        self._queue_end = queue.end
        self._rule = rule
        self._by_time: TimeSearch | None = None
        self._reads: tuple[EntriesRead, EntriesRead] | None = None
        self.summed = SummedBytes()
        """To be passed to the queue's next search."""
        if rule.stored_ms is not None:
            self._by_time = TimeSearch(disk, queue, read_log)
        if rule.bytes_max is not None:
            if not queue.min_offset <= summed.begin <= summed.end <= queue.end:
                summed = SummedBytes(queue.served_from, queue.served_from)
            self.summed = summed
            self._reads = (
                queue.plan_read(disk, summed.begin, min(entries_max, summed.end - summed.begin)),
                queue.plan_read(disk, summed.end, entries_max),
            )

    @property
    def has_more(self) -> bool:
        """Whether the next search of this queue would find more at once."""
        bytes_max, summed = self._rule.bytes_max, self.summed
        if bytes_max is None or self.trouble is not None:
            return False
        if summed.end < self._queue_end:
            return True
        if summed.begin < min(self._served_from, self._queue_end - 1):
            return True
        return summed.size > bytes_max and summed.end - summed.begin > 1

    def run(self) -> None:
        """[any thread]"""
        try:
            found = self._by_bytes()
            if self._by_time is not None and self._rule.stored_ms is not None:
                found = max(found, self._by_time.run(self._rule.stored_ms, Boundary.LOWER))
        except (AerobeeError, OSError) as error:
            self.trouble = error
        else:
            self.found = max(self.found, found)

    def _by_bytes(self) -> int:
        """Raises QueueDamaged, OSError."""
        if self._reads is None or self._rule.bytes_max is None:
            return 0
        oldest, newest = (_sizes(read.run()) for read in self._reads)
        begin, end = self.summed.begin, self.summed.end
        if begin + len(oldest) == end:
            oldest = np.concatenate((oldest, newest))
        end += len(newest)
        size = self.summed.size + int(newest.sum())
        # The newest message stays. What is not summed yet can only push out more.
        dropped = oldest[: max(0, min(len(oldest), self._queue_end - 1 - begin))]
        sums = np.cumsum(dropped)
        count = 0
        if size > self._rule.bytes_max:
            count = int(np.searchsorted(sums, size - self._rule.bytes_max)) + 1
        count = min(len(dropped), max(count, self._served_from - begin))
        if count:
            size -= int(sums[count - 1])
        self.summed = SummedBytes(begin + count, end, size)
        return begin + count


def _sizes(entries: bytes) -> Int64Array:
    """Of the records; 0 for entries of none."""
    _, sizes, _ = unpack_entries(entries)
    return np.where((sizes > 0) & (sizes != PRE_BLANK_SIZE), sizes, 0).astype(np.int64)
