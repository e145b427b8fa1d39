"""Reads of queues that must wait for the disk, to run on any thread.

A work holds everything it needs, so that its waits do not hold up the loop, and files that
retention removes meanwhile only change its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.disk import Advice
from aerobee.store.engine.log.catch_up import Range
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.log.segment import RecordRemoved, SegmentHandle
from aerobee.store.engine.queues.reading import STEPS_MAX, Filter, GetStatus, Located
from aerobee.store.engine.queues.record_match import RecordCheck
from aerobee.store.format.record import Record, RecordCorrupt


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """Where the messages are, and their concatenated records; empty unless FOUND."""

    located: Located
    records: bytes = b""
    judged: int = 0
    """For how many records the filter looked at more than their tags codes."""

    @property
    def read_bytes(self) -> int:
        """How much of the log was read for it."""
        return sum(size for _, size in self.located.runs)


def checked_outcome(
    located: Located,
    records: bytes,
    check: RecordCheck,
    filter: Filter | None,
    messages_max: int,
) -> ReadOutcome:
    """[any thread] What a reader gets of the records that `located` points to: up to `messages_max`
    that pass an exact filter; the read then ends there, or once its evaluation has cost STEPS_MAX.
    Where tags codes are stored elsewhere, any filter is applied exactly.

    Raises EntryMismatch: they do not match `located`, or an exact filter cannot read one.
    """
    check.check(located, records)
    if filter is None or not (filter.is_exact or located.is_unsure):
        return ReadOutcome(located, records)
    chosen: list[int] = []
    parts: list[bytes] = []
    start = steps = 0
    index = -1
    for index, size in enumerate(located.sizes.tolist()):
        try:
            matches, price = filter.verdict(Record(records, start, start + size))
        except RecordCorrupt as error:
            raise check.mismatch(f"at log offset {located.positions[index]}") from error
        if matches:
            chosen.append(index)
            parts.append(records[start : start + size])
            if len(chosen) == messages_max:
                break
        start += size
        steps += price
        if steps >= STEPS_MAX:
            break
    located = located.cut(index + 1)
    matching = replace(
        located,
        status=GetStatus.FOUND if chosen else GetStatus.NO_MATCHED_MESSAGE,
        count=len(chosen),
        positions=located.positions[chosen],
        sizes=located.sizes[chosen],
        offsets=located.offsets[chosen],
    )
    return ReadOutcome(matching, b"".join(parts), index + 1)


Select = Callable[[bytes, int, int | None], Located]


class ReadWork:
    """One read. Made by `QueueReads.read`; pass it to `QueueReads.finish` afterwards."""

    __slots__ = (
        "_check",
        "_entries",
        "_filter",
        "_load_entries",
        "_log",
        "_messages_max",
        "_select",
        "handle",
        "outcome",
    )

    def __init__(
        self,
        log: CommitLog,
        select: Select,
        check: RecordCheck,
        handle: SegmentHandle,
        *,
        filter: Filter | None,
        messages_max: int,
        entries: bytes | None,
        load_entries: Callable[[], bytes],
    ) -> None:
        """`select` says which of the entries to read, given the log's minimum and a limit of bytes
        if that is below what is wanted; `check` checks the records against the entries;
        `load_entries` reads the entries if they are not known."""
        self._log = log
        self._select = select
        self._check = check
        self.handle = handle
        self._filter = filter
        self._messages_max = messages_max
        self._entries = entries
        self._load_entries = load_entries
        self.outcome: ReadOutcome | None = None

    def run(self, judging: AbstractContextManager[object] | None = None) -> ReadOutcome:
        """[any thread] `judging` is held while a filter works.

        Raises OSError, and AerobeeError for damaged files.
        """
        entries = self._load_entries() if self._entries is None else self._entries
        floor = self._log.min_offset
        bytes_max: int | None = None
        while self.outcome is None:
            located = self._select(entries, floor, bytes_max)
            if located.status is not GetStatus.FOUND:
                self.outcome = ReadOutcome(located)
                break
            try:
                records = self._log.read(located.runs, self.handle)
            except RecordRemoved as removed:
                # Records before the gap come first; if there are none, those after it are returned.
                before = [size for start, size in located.runs if start < removed.removed_from]
                if before:
                    bytes_max = sum(before)
                else:
                    floor = max(removed.readable_from, floor + 1)
                continue
            except MessageNotFound as error:
                raise self._check.mismatch(str(error)) from error
            with nullcontext() if judging is None or self._filter is None else judging:
                self.outcome = checked_outcome(
                    located, records, self._check, self._filter, self._messages_max
                )
        return self.outcome


class AdviceWork:
    """Tells the kernel what readers that catch up will want next, and what all have passed."""

    __slots__ = ("_ahead", "_handle", "_log", "_passed")

    def __init__(
        self, log: CommitLog, handle: SegmentHandle, *, ahead: Range, passed: Sequence[Range]
    ) -> None:
        self._log = log
        self._handle = handle
        self._ahead = ahead
        self._passed = passed

    def run(self) -> None:
        """[any thread] Raises OSError."""
        start, end = self._ahead
        self._log.advise(start, end, Advice.WILL_NEED, self._handle)
        for start, end in self._passed:
            self._log.advise(start, end, Advice.DONT_NEED)
