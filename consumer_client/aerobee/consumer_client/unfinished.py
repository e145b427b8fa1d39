"""What a pull consumer's user has not finished in a queue, down to single messages (`processing`).

Owns: for one queue, what was finished out of order, the messages in blocks now, and the failed ones
to be returned again. A message stands for a span of offsets that starts right after the previous
message, so that the spans of a queue have no gaps, whatever a filter left out. Memory is used for
messages that are in blocks, failed, or finished out of order; not for all that were returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.process_queue import Entry


class Unfinished:
    """The invariant: `frontier` is the lowest unfinished offset."""

    def __init__(self, offset: int, on_change: Callable[[], None]) -> None:
        """`on_change`: something was finished, or will be returned again."""
        self.frontier = offset
        self._on_change = on_change
        self._is_closed = False
        # All three start at the first offset of a span; finished ones are after the frontier.
        self._finished: dict[int, int] = {}
        self._in_blocks: dict[int, int] = {}
        self._failed: dict[int, ReceivedMessage] = {}
        self._waiting: dict[int, ReceivedMessage] = {}  # failed, and not to be returned yet
        self._last_passed = -1

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    def close(self) -> None:
        """The queue belongs to another member: anything finished from now on is not known there."""
        self._is_closed = True
        self._failed.clear()
        self._waiting.clear()

    def hand_out(self, entries: Iterable[Entry[ReceivedMessage]], begin: int, end: int) -> None:
        """Return these messages, the only ones among the offsets from `begin` to `end`."""
        last: ReceivedMessage | None = None
        for offset, _, message in entries:
            if last is not None:
                last.in_hand = (self, begin, offset)
                begin = offset
            last = message
        if last is None:
            self._pass(begin, end)
        else:
            last.in_hand = (self, begin, end)

    def _pass(self, begin: int, end: int) -> None:
        """Spans without a message that follow each other without a commit are merged."""
        last = self._last_passed
        if self._finished.get(last) == begin:
            self._finished[last] = end
        else:
            self._finished[begin] = end
            self._last_passed = begin
        self._advance()

    def take_failed(self, count_max: int) -> list[ReceivedMessage]:
        """The oldest failed ones, to be returned once more."""
        return [self._failed.pop(begin) for begin in sorted(self._failed)[:count_max]]

    def begin(self, message: ReceivedMessage) -> None:
        _, begin, end = message.in_hand
        if not self._is_closed and begin >= self.frontier and begin not in self._finished:
            self._failed.pop(begin, None)  # Tried again without another `poll`.
            self._waiting.pop(begin, None)
            self._in_blocks[begin] = end

    def finish(self, message: ReceivedMessage) -> None:
        _, begin, end = message.in_hand
        if self._in_blocks.pop(begin, None) is not None and not self._is_closed:
            self._finished[begin] = end
            self._advance()
            self._on_change()

    def fail(self, message: ReceivedMessage, *, waits: bool = False) -> None:
        """`waits`: it is not returned before `ripen`."""
        _, begin, _ = message.in_hand
        if self._in_blocks.pop(begin, None) is not None and not self._is_closed:
            message.attempts_before = getattr(message, "attempts_before", 0) + 1
            (self._waiting if waits else self._failed)[begin] = message
            self._on_change()

    def ripen(self, message: ReceivedMessage) -> None:
        """Its wait is over."""
        _, begin, _ = message.in_hand
        if self._waiting.get(begin) is message:
            self._failed[begin] = self._waiting.pop(begin)
            self._on_change()

    def put_back(self, message: ReceivedMessage) -> None:
        """It was returned but never received: it is returned again as untried."""
        offset = message.queue_offset
        if not hasattr(message, "in_hand"):
            message.in_hand = (self, offset, offset + 1)
        _, begin, _ = message.in_hand
        if not self._is_closed and begin >= self.frontier:
            self._failed[begin] = message
            self._on_change()

    def finish_all(self, position: int) -> None:
        """Everything before `position` except what is in blocks or failed."""
        if self._is_closed:
            return
        failed = [
            (begin, message.in_hand[2])
            for begin, message in (*self._failed.items(), *self._waiting.items())
        ]
        kept = [*sorted([*self._in_blocks.items(), *failed]), (position, position)]
        self.frontier = kept[0][0]
        self._finished = {end: begin for (_, end), (begin, _) in pairwise(kept) if end < begin}

    def is_in_hand(self, position: int) -> bool:
        """Whether the user has something before `position` that is not failed."""
        at = self.frontier
        while at < position:
            if (message := self._failed.get(at) or self._waiting.get(at)) is not None:
                at = message.in_hand[2]
            elif (end := self._finished.get(at)) is not None:
                at = end
            else:
                return True
        return False

    def _advance(self) -> None:
        while (end := self._finished.pop(self.frontier, None)) is not None:
            self.frontier = end
