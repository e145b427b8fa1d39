"""A master's writer of groups' offsets: the state once everything waiting is confirmed.

Invariant: what is checked against `standing` is added to the journal in the order of the checks, so
that no commit in the log moves an offset back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.journal.writer import WAITING_BYTES_MAX, JournalWriter
from aerobee.broker.offsets.entries import (
    Entry,
    LeaseEntry,
    OffsetEntry,
    OffsetsRemoved,
    TopicEnded,
    TopicLivesOn,
    lease_entries,
)
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing, merge
from aerobee.broker.offsets.sent_back import (
    RANGES_PER_ENTRY,
    Copied,
    FinishedBeyond,
    SentBack,
    TriedInOrder,
)
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy
from aerobee.store.engine.tables.consumer_offset_table import Tried

SENT_BACK_AT_ONCE: Final = 10
"""Entries of at most 6 KiB each: a reason in Cyrillic takes three times its size in JSON."""


class OffsetWriter:
    """The writer of one term; see the module. On the loop; nothing here waits.

    Returned futures are done when the entry is in effect, and raise as `JournalWriter.add`.
    """

    def __init__(
        self,
        state: OffsetJournalState,
        writer: JournalWriter[Entry],
        clock: Clock,
        *,
        on_reset: Callable[[GroupQueue], None],
    ) -> None:
        """`on_reset` is called when a reset has set an offset or a removal has removed it, before
        the caller is told."""
        self._state = state
        self._writer = writer
        self._clock = clock
        self._on_reset = on_reset
        # The state once everything waiting is confirmed, and the newest entry that sets it.
        self._ahead: dict[GroupQueue, tuple[Standing | None, OffsetEntry | OffsetsRemoved]] = {}
        # Which queues each waiting removal removes, by the removal's identity; and by group and
        # topic the number of waiting removals that name no queue.
        self._removing: dict[int, list[GroupQueue]] = {}
        self._removing_all: Counter[tuple[str | None, str | None]] = Counter()
        # Sent-back messages that are not in effect yet; and the copies that are not in the log.
        self._sending_back: dict[GroupQueue, dict[int, SentBack]] = {}
        self._owed = {entry.number: entry for entry in state.open_copies}
        self._next_copy = state.next_copy

    # ------------------------------------------------------------------------------ asking

    def standing(self, key: GroupQueue) -> Standing | None:
        """The state once everything waiting is confirmed."""
        ahead = self._ahead.get(key)
        return self._state.standing(key) if ahead is None else ahead[0]

    def keys(self) -> list[GroupQueue]:
        """Every queue of every group that has an offset, or will have one."""
        return [*self._state.keys(), *(key for key in self._ahead if not self._state.standing(key))]

    def selected(self, removed: OffsetsRemoved) -> list[GroupQueue]:
        """As the state's `selected`, once everything waiting is in effect."""
        found = self._state.selected(removed)
        if removed.queue_id is not None:
            return found
        ahead = filter(removed.selects, chain(self._ahead, self._sending_back))
        return list(dict.fromkeys(chain(found, ahead)))

    def is_changing(self, group: str) -> bool:
        """Whether anything of the group is waiting for confirmation."""
        return any(key.group == group for key in chain(self._ahead, self._sending_back))

    def is_removing(self, key: GroupQueue) -> bool:
        """Whether a removal of the queue's offset is waiting for confirmation."""
        if not self._removing:
            return False
        group, topic, _ = key
        if any(self._removing_all[each] for each in ((group, None), (None, topic), (group, topic))):
            return True
        ahead = self._ahead.get(key)
        return ahead is not None and isinstance(ahead[1], OffsetsRemoved)

    def waiting_for(self, key: GroupQueue) -> asyncio.Future[None] | None:
        """The newest waiting record that concerns this queue, if there is one."""
        return self._writer.newest if key in self._ahead else None

    def is_finished_beyond(self, key: GroupQueue, offset: int) -> bool:
        """Whether a message after the group's offset is, or is about to be, finished."""
        finished = self._state.finished_beyond(key)
        return offset in self._sending_back.get(key, ()) or (
            finished is not None and offset in finished
        )

    def finished_count(self, key: GroupQueue) -> int:
        """At most how many ranges the group has there after its offset."""
        finished = self._state.finished_beyond(key)
        waiting = len(self._sending_back.get(key, ()))
        return waiting + (0 if finished is None else len(finished))

    def tried(self, key: GroupQueue) -> Tried | None:
        """Which message of the queue, if any, is being retried in order."""
        return self._state.tried(key)

    @property
    def next_copy(self) -> int:
        """The number for the copy of the next sent-back message."""
        return self._next_copy

    def owed_copies(self) -> list[SentBack]:
        """Copies that may not be in the log, ordered by number."""
        return list(self._owed.values())

    def owes(self, entry: SentBack) -> bool:
        """Whether this copy can be made and may not be in the log."""
        return self._owed.get(entry.number) is entry

    def lease(self) -> RunRecord | None:
        """The newest record of queue leases, once all that waits is in effect; None: none
        exists."""
        record, parts = self._state.lease, self._state.lease_parts.copy()
        for entry in self._writer.waiting():
            if isinstance(entry, LeaseEntry):
                record = parts.take(entry) or record
        return record

    # ------------------------------------------------------------------------------ adding

    def change(
        self, key: GroupQueue, change: Change, client_id: str = "", *, is_durable: bool = False
    ) -> asyncio.Future[None]:
        """Change an offset. `is_durable`: done only when it is also on disk."""
        entry = OffsetEntry(key, change, self._clock.now_ms(), client_id)
        done = self._writer.add(entry, is_durable=is_durable)
        self._look_ahead(entry)
        return done

    def remove(self, removed: OffsetsRemoved) -> asyncio.Future[None]:
        """Remove offsets; done when that is also on disk."""
        done = self._writer.add(removed)
        self._look_ahead(removed)
        return done

    def end_topic(
        self, topic: str, deleted_at_ms: int, *, lease_epoch: int
    ) -> asyncio.Future[None]:
        """End a topic, in a record of its own; done when it is also on disk. `lease_epoch` is the
        newest queue lease granted."""
        ended = TopicEnded.of(topic, deleted_at_ms, lease_epoch, self._clock.now_ms())
        self._writer.flush()
        done = self._writer.add(ended, ends_topic=topic)
        self._look_ahead(ended)
        self._writer.flush()
        return done

    def topic_lives_on(self, entry: TopicLivesOn) -> asyncio.Future[None]:
        """Record that a deleted topic needs no end; done when it is also on disk."""
        return self._writer.add(entry)

    def send_back(self, entries: Sequence[SentBack]) -> asyncio.Future[None]:
        """Messages are finished and their copies owed, numbered from `next_copy` on. On return this
        is in the log, so that later appends come after it; done when it is in effect and on disk.

        Raises:
            AerobeeError: it is not in the log, and nothing is finished.
        """
        assert len(entries) <= SENT_BACK_AT_ONCE, "they share a record, or none of them counts"
        if self._writer.waiting_bytes > WAITING_BYTES_MAX // 2:
            raise Busy("too many entries of the offset journal wait for the log; try again later")
        self._writer.flush()
        # A number is used once, whatever happens to its entry.
        self._next_copy = entries[-1].number + 1
        for entry in entries:
            done = self._writer.add(entry)
            self._look_ahead(entry)
            self._owed[entry.number] = entry
        self._writer.flush()
        if done.done() and (error := done.exception()) is not None:
            for entry in entries:
                self._owed.pop(entry.number, None)
            raise error
        return done

    def finish_beyond(self, entry: FinishedBeyond) -> asyncio.Future[None]:
        """Messages are finished without a replacement; done when it is also on disk. Raises
        AerobeeError."""
        return self._writer.add(entry)

    def try_again(self, entry: TriedInOrder) -> asyncio.Future[None]:
        """A message consumed in order stays; done when its attempts are also on disk. Raises
        AerobeeError."""
        return self._writer.add(entry)

    def note_copied(self, numbers: Iterable[int]) -> None:
        """These copies are in the log, or never can be. The journal records it soon; until then a
        new master looks for each of them. Raises AerobeeError."""
        for number in numbers:
            self._owed.pop(number, None)
        self._writer.add(self._copied(), is_durable=False)

    def make_durable(self) -> asyncio.Future[None]:
        """Done when everything recorded so far is in effect and on disk. Raises AerobeeError."""
        return self._writer.add(self._copied())

    def _copied(self) -> Copied:
        return Copied(min(self._owed, default=self._next_copy), self._clock.now_ms())

    async def record_leases(self, record: RunRecord) -> None:
        """Write a new record of queue leases, in parts. Returns once it is confirmed and on disk.

        Raises:
            NotMaster, ReplicaBehind, NotWritable, Busy, StoreFailed.
        """
        now_ms = self._clock.now_ms()
        for done in [self._writer.add(entry) for entry in lease_entries(record, now_ms)]:
            await asyncio.shield(done)

    # ------------------------------------------------------------------------------ the journal

    def counted(self, entries: Sequence[Entry | ImageEnd]) -> None:
        """These are in effect now. See `JournalTerm`."""
        for entry in entries:
            if isinstance(entry, SentBack):
                self._count_sent_back(entry)
            elif isinstance(entry, OffsetEntry):
                self._forget_ahead(entry.key, entry)
                if entry.change.kind is ChangeKind.RESET:
                    self._on_reset(entry.key)
            elif isinstance(entry, OffsetsRemoved):
                if isinstance(entry, TopicEnded):
                    self._forget_owed(entry.topic)
                if entry.queue_id is None:
                    self._removing_all[entry.group, entry.topic] -= 1
                    self._removing_all += Counter()  # drops what no longer waits
                for key in self._removing.pop(id(entry)):
                    if self._forget_ahead(key, entry):
                        self._on_reset(key)

    def dropped(self, waiting: Iterable[Entry | ImageEnd]) -> None:
        """Only these still wait. See `JournalTerm`."""
        self._ahead.clear()
        self._removing.clear()
        self._removing_all.clear()
        self._sending_back.clear()
        for entry in waiting:
            self._look_ahead(entry)

    def image(self) -> Iterator[Entry]:
        """The whole state. See `JournalTerm`."""
        lease = self.lease()
        if lease is not None:
            yield from lease_entries(lease, self._clock.now_ms())
        yield from self._state.topic_ends(self._clock.now_ms())
        for key in self.keys():
            standing = self.standing(key)
            if standing is not None:
                yield OffsetEntry(key, Change(ChangeKind.IMAGE, *standing), self._clock.now_ms())
        yield from self._image_out_of_turn()

    def _image_out_of_turn(self) -> Iterator[Entry]:
        yield self._copied()
        for number in list(self._owed):
            if (owed := self._owed.get(number)) is not None:
                yield replace(owed, is_repeated=True)
        for name, tried in self._state.all_tried():
            key = GroupQueue(*name)
            if self._state.tried(key) == tried and not self._is_taking_back(key):
                yield TriedInOrder(key, tried, self._clock.now_ms())
        for name, _ in self._state.all_finished_beyond():
            key = GroupQueue(*name)
            ranges = self._state.finished_beyond(key)
            if ranges is None or self._is_taking_back(key):
                continue
            every = tuple(ranges)
            for first in range(0, len(every), RANGES_PER_ENTRY):
                if first and self._is_taking_back(key):
                    break
                some = every[first : first + RANGES_PER_ENTRY]
                yield FinishedBeyond(key, some, self._clock.now_ms())

    def _is_taking_back(self, key: GroupQueue) -> bool:
        """Whether anything waiting removes what is finished after the offset."""
        return (bool(self._removing) or key in self._ahead) and any(
            entry.key == key and entry.change.kind is ChangeKind.RESET
            if isinstance(entry, OffsetEntry)
            else isinstance(entry, OffsetsRemoved) and entry.selects(key)
            for entry in self._writer.waiting()
        )

    def _look_ahead(self, entry: Entry | ImageEnd) -> None:
        """Note the state after this entry, the newest of all that wait."""
        if isinstance(entry, OffsetEntry):
            self._ahead[entry.key] = merge(self.standing(entry.key), entry.change), entry
        elif isinstance(entry, OffsetsRemoved):
            if entry.queue_id is None:
                self._removing_all[entry.group, entry.topic] += 1
            keys = self._removing[id(entry)] = self.selected(entry)
            for key in keys:
                self._ahead[key] = None, entry
        elif isinstance(entry, SentBack) and not entry.is_repeated:
            self._sending_back.setdefault(entry.key, {})[entry.offset] = entry

    def _count_sent_back(self, entry: SentBack) -> None:
        waiting = self._sending_back.get(entry.key, {})
        if waiting.get(entry.offset) is entry:
            del waiting[entry.offset]
            if not waiting:
                del self._sending_back[entry.key]

    def _forget_owed(self, topic: str | None) -> None:
        """The originals of these copies are gone together with their topic."""
        for number in [each.number for each in self._owed.values() if each.key.topic == topic]:
            del self._owed[number]

    def _forget_ahead(self, key: GroupQueue, entry: OffsetEntry | OffsetsRemoved) -> bool:
        """The entry is in effect now; returns whether no newer one waits."""
        ahead = self._ahead.get(key)
        if ahead is None or ahead[1] is not entry:
            return False
        del self._ahead[key]
        return True
