"""What a pull consumer's user has not finished of a queue, down to single messages (`processing`).

Owns: of one queue, what was finished out of order, the messages in blocks now, and the failed ones
that come again. A message stands for a span of offsets: from the one after the message before it,
so that the spans of a queue follow each other without gaps, whatever a filter left out. Memory: of
what is in blocks, failed, or finished out of order; not of what was handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.process_queue import Entry


class Unfinished:
    """The invariant: `frontier` is the lowest offset that is not finished."""

    def __init__(self, offset: int, on_change: Callable[[], None]) -> None:
        """`on_change`: something was finished, or comes again."""
        self.frontier = offset
        self._on_change = on_change
        self._is_closed = False
        # All three from the first offset of a span; finished are those after the frontier.
        self._finished: dict[int, int] = {}
        self._in_blocks: dict[int, int] = {}
        self._failed: dict[int, ReceivedMessage] = {}
        self._last_passed = -1

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    def close(self) -> None:
        """The queue is another's: what is finished from now on is not known there."""
        self._is_closed = True
        self._failed.clear()

    def hand_out(self, entries: Iterable[Entry[ReceivedMessage]], begin: int, end: int) -> None:
        """These messages, and no others of the offsets from `begin` to `end`."""
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
        """Spans without a message follow each other while nothing is committed: they are one."""
        last = self._last_passed
        if self._finished.get(last) == begin:
            self._finished[last] = end
        else:
            self._finished[begin] = end
            self._last_passed = begin
        self._advance()

    def take_failed(self, count_max: int) -> list[ReceivedMessage]:
        """The oldest ones, to be handed out once more."""
        return [self._failed.pop(begin) for begin in sorted(self._failed)[:count_max]]

    def begin(self, message: ReceivedMessage) -> None:
        _, begin, end = message.in_hand
        if not self._is_closed and begin >= self.frontier and begin not in self._finished:
            self._failed.pop(begin, None)  # Tried again without another `poll`.
            self._in_blocks[begin] = end

    def finish(self, message: ReceivedMessage) -> None:
        _, begin, end = message.in_hand
        if self._in_blocks.pop(begin, None) is not None and not self._is_closed:
            self._finished[begin] = end
            self._advance()
            self._on_change()

    def fail(self, message: ReceivedMessage) -> None:
        _, begin, _ = message.in_hand
        if self._in_blocks.pop(begin, None) is not None and not self._is_closed:
            message.attempts_before = getattr(message, "attempts_before", 0) + 1
            self._failed[begin] = message
            self._on_change()

    def put_back(self, message: ReceivedMessage) -> None:
        """Handed out, and nobody got it: it comes again as one that was not tried."""
        offset = message.queue_offset
        if not hasattr(message, "in_hand"):
            message.in_hand = (self, offset, offset + 1)
        _, begin, _ = message.in_hand
        if not self._is_closed and begin >= self.frontier:
            self._failed[begin] = message
            self._on_change()

    def finish_all(self, position: int) -> None:
        """All below `position`, but for what is in blocks or failed."""
        if self._is_closed:
            return
        failed = ((begin, message.in_hand[2]) for begin, message in self._failed.items())
        kept = [*sorted([*self._in_blocks.items(), *failed]), (position, position)]
        self.frontier = kept[0][0]
        self._finished = {end: begin for (_, end), (begin, _) in pairwise(kept) if end < begin}

    def is_in_hand(self, position: int) -> bool:
        """Whether the user has something below `position` that is not failed."""
        at = self.frontier
        while at < position:
            if (message := self._failed.get(at)) is not None:
                at = message.in_hand[2]
            elif (end := self._finished.get(at)) is not None:
                at = end
            else:
                return True
        return False

    def _advance(self) -> None:
        while (end := self._finished.pop(self.frontier, None)) is not None:
            self.frontier = end
