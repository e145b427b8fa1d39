"""How many messages this master acknowledged, by topic and minute of store time.

Owns: the counts of about the last day. A batch costs one addition; where acknowledgements wait for
disk or replicas, one more when they have come. Under another epoch counting begins anew.

Always holds: what is counted was acknowledged, or could be without waiting any longer; messages
whose outcome was left open by the end of a term never are. On the loop.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

MS_PER_MINUTE = 60_000
MINUTES_MAX = 24 * 60
ENTRIES_MAX = 200_000
"""Topics times minutes that are kept; beyond it the oldest minutes go."""
SETTLE_PENDING = 1_024

_UNKNOWN = -1


class MinuteCounts(NamedTuple):
    """One Unix minute: topics and how many messages of each."""

    minute: int
    topics: Sequence[str]
    messages: Sequence[int]


class AcknowledgedMinutes:
    """See the module."""

    def __init__(
        self,
        *,
        waits: bool,
        acknowledged_end: Callable[[], int],
        epoch: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`waits`: acknowledgements wait until `acknowledged_end` has come; it belongs to the
        present term. `epoch` is that of the term."""
        self._waits = waits
        self._acknowledged_end = acknowledged_end
        self._epoch_now = epoch
        self._now_ms = now_ms
        self._epoch = _UNKNOWN
        self._closed: deque[MinuteCounts] = deque()
        self._entries = 0
        self._minute = _UNKNOWN
        self._open: dict[str, int] = {}
        # Stored, not acknowledged yet: where it ends in the log, its minute, topic, messages.
        self._pending: deque[tuple[int, int, str, int]] = deque()
        # Acknowledged late, after their minute was closed: few.
        self._late: dict[tuple[int, str], int] = {}
        self.first_whole_minute = now_ms() // MS_PER_MINUTE + 1

    def stored(self, topic: str, store_timestamp_ms: int, end: int, messages: int) -> None:
        """Messages of one topic were stored, up to `end` of the log."""
        minute = store_timestamp_ms // MS_PER_MINUTE
        if minute != self._minute or self._epoch_now() != self._epoch:
            self._begin_minute(minute)
        if self._waits:
            self._pending.append((end, minute, topic, messages))
            if len(self._pending) > SETTLE_PENDING:
                self._settle()
        else:
            self._open[topic] = self._open.get(topic, 0) + messages

    def minutes(self) -> list[MinuteCounts]:
        """What is counted so far, oldest first."""
        if self._epoch_now() != self._epoch:
            return []
        self._settle()
        self._fold_late()
        counted = list(self._closed)
        if self._open:
            counted.append(MinuteCounts(self._minute, tuple(self._open), (*self._open.values(),)))
        return counted

    # ------------------------------------------------------------------------------ inside

    def _begin_minute(self, minute: int) -> None:
        if self._epoch_now() != self._epoch:
            self._begin_epoch(minute)
        self._settle()
        if self._open:
            self._close(self._minute, self._open, len(self._closed))
            self._open.clear()
        self._minute = minute
        self._fold_late()
        while self._closed and (
            self._closed[0].minute <= minute - MINUTES_MAX or self._entries > ENTRIES_MAX
        ):
            gone = self._closed.popleft()
            self._entries -= len(gone.topics)
            self.first_whole_minute = max(self.first_whole_minute, gone.minute + 1)

    def _close(self, minute: int, counts: dict[str, int], place: int) -> None:
        closed = MinuteCounts(minute, tuple(counts), array("q", counts.values()))
        self._closed.insert(place, closed)
        self._entries += len(counts)

    def _fold_late(self) -> None:
        """Add what was acknowledged late to the minutes that it belongs to, which are young."""
        late: dict[int, dict[str, int]] = {}
        for (minute, topic), messages in self._late.items():
            late.setdefault(minute, {})[topic] = messages
        self._late.clear()
        for minute, added in late.items():
            place = len(self._closed)
            while place and self._closed[place - 1].minute > minute:
                place -= 1
            counts: dict[str, int] = {}
            if place and self._closed[place - 1].minute == minute:
                place -= 1
                known = self._closed[place]
                del self._closed[place]
                self._entries -= len(known.topics)
                counts = dict(zip(known.topics, known.messages, strict=True))
            for topic, messages in added.items():
                counts[topic] = counts.get(topic, 0) + messages
            self._close(minute, counts, place)

    def _begin_epoch(self, minute: int) -> None:
        # Of this minute another master may have acknowledged the beginning.
        self.first_whole_minute = max(minute, self._now_ms() // MS_PER_MINUTE) + 1
        self._epoch = self._epoch_now()
        self._closed.clear()
        self._entries = 0
        self._open.clear()
        self._pending.clear()
        self._late.clear()

    def _settle(self) -> None:
        """Count what has been acknowledged since."""
        end = self._acknowledged_end()
        pending = self._pending
        while pending and pending[0][0] <= end:
            _, minute, topic, messages = pending.popleft()
            if minute == self._minute:
                self._open[topic] = self._open.get(topic, 0) + messages
            else:
                name = (minute, topic)
                self._late[name] = self._late.get(name, 0) + messages
