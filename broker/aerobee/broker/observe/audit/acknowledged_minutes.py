"""How many messages this master acknowledged, by topic and minute of store time.

Owns: the counts of about the last day. A batch costs one addition, when it is acknowledged; since
store times rise with the log, minutes begin one after another. A new epoch restarts the count. On
the loop.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aerobee.broker.sending.acknowledged import AcknowledgedBatch

MS_PER_MINUTE = 60_000
MINUTES_MAX = 24 * 60
ENTRIES_MAX = 200_000
"""Topics times minutes that are kept; above this the oldest minutes are dropped."""

_UNKNOWN = -1


class MinuteCounts(NamedTuple):
    """One Unix minute: topics and the number of messages of each."""

    minute: int
    topics: Sequence[str]
    messages: Sequence[int]


class AcknowledgedMinutes:
    """Counts what a master acknowledges, for the audit to compare with its log."""

    def __init__(self, *, epoch: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """`epoch` is that of the present term."""
        self._epoch_now = epoch
        self._now_ms = now_ms
        self._epoch = _UNKNOWN
        self._closed: deque[MinuteCounts] = deque()
        self._entries = 0
        self._minute = _UNKNOWN
        self._open: dict[str, int] = {}
        self.first_whole_minute = now_ms() // MS_PER_MINUTE + 1

    def acknowledged(self, batch: AcknowledgedBatch) -> None:
        """Messages of one topic were acknowledged."""
        minute = batch.store_timestamp_ms // MS_PER_MINUTE
        if minute != self._minute or self._epoch_now() != self._epoch:
            self._begin_minute(minute)
        self._open[batch.topic] = self._open.get(batch.topic, 0) + batch.messages

    def minutes(self) -> list[MinuteCounts]:
        """The counts so far, oldest first."""
        if self._epoch_now() != self._epoch:
            return []
        counted = list(self._closed)
        if self._open:
            counted.append(MinuteCounts(self._minute, tuple(self._open), (*self._open.values(),)))
        return counted

    # ------------------------------------------------------------------------------ inside

    def _begin_minute(self, minute: int) -> None:
        if self._epoch_now() != self._epoch:
            self._begin_epoch(minute)
        assert minute >= self._minute, "store times rise with the log"
        if self._open:
            counts = array("q", self._open.values())
            self._closed.append(MinuteCounts(self._minute, tuple(self._open), counts))
            self._entries += len(self._open)
            self._open.clear()
        self._minute = minute
        while self._closed and (
            self._closed[0].minute <= minute - MINUTES_MAX or self._entries > ENTRIES_MAX
        ):
            gone = self._closed.popleft()
            self._entries -= len(gone.topics)
            self.first_whole_minute = max(self.first_whole_minute, gone.minute + 1)

    def _begin_epoch(self, minute: int) -> None:
        # For this minute another master may have acknowledged the beginning.
        self.first_whole_minute = max(minute, self._now_ms() // MS_PER_MINUTE) + 1
        self._epoch = self._epoch_now()
        self._closed.clear()
        self._entries = 0
        self._open.clear()
        self._minute = _UNKNOWN
