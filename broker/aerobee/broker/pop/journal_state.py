"""The state of POP's journal up to one of its records, on every replica: a `JournalState`.

Owns: the queues of groups that POP consumes, as of the confirmed entries, and the file with the
same content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.place import Place, Placed, encode_file, read_file
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.pop.entries import Begun, Ended, PopEntry, QueueImage, decode_entry, entry_text
from aerobee.broker.pop.standing import Standing
from aerobee.store.format.progress_file import POP_MAGIC, POP_PROGRESS

POP_PATH: Final = f"config/{POP_PROGRESS}"


class PopJournalState(Placed):
    """On the loop."""

    encode = staticmethod(entry_text)
    decode = staticmethod(decode_entry)

    def __init__(
        self, queues: dict[GroupQueue, Standing] | None = None, place: Place | None = None
    ) -> None:
        """Without arguments: the state of a journal without records."""
        self._queues = queues or {}
        super().__init__(place)
        self.latest_ms = 0
        """When the newest applied entry was written, by its master's clock."""

    def __repr__(self) -> str:
        return f"PopJournalState({self._place}, {len(self._queues)} queues)"

    def copies(self) -> dict[GroupQueue, Standing]:
        """Copies for all queues of groups that POP consumes."""
        return {key: standing.copy() for key, standing in self._queues.items()}

    def standing(self, key: GroupQueue) -> Standing | None:
        """Do not modify. None: POP does not consume the queue."""
        return self._queues.get(key)

    def apply(self, entries: Sequence[PopEntry | ImageEnd], queue_offset: int) -> None:
        """Apply the next record of the journal."""
        place = self._place.after(entries, queue_offset)
        apply_entries(self._queues, entries)
        times = (each.at_ms for each in entries if not isinstance(each, ImageEnd))
        self.latest_ms = max(times, default=self.latest_ms)
        self._place = place

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are gone or cannot be read. They may have invalidated what is
        known; the next image says what still holds."""
        self._queues.clear()
        self._place = self._place.skipped_to(queue_offset)

    # ------------------------------------------------------------------------------ its file

    def snapshot(self) -> Callable[[], bytes]:
        """A callable that encodes the file as of now; call it on [any thread]. Write the file only
        when the journal's records below `next_offset` are on disk."""
        queues, place = self.copies(), self._place
        return lambda: encode_file(POP_MAGIC, place, map(entry_text, image_of(queues, now_ms=0)))


def apply_entries(
    queues: dict[GroupQueue, Standing], entries: Iterable[PopEntry | ImageEnd]
) -> None:
    """Apply entries to queues. Those of an unknown queue wait for its image."""
    for entry in entries:
        if isinstance(entry, ImageEnd):
            continue
        standing = queues.get(entry.key)
        if isinstance(entry, Ended):
            queues.pop(entry.key, None)
        elif standing is not None:
            standing.apply(entry)
        elif isinstance(entry, Begun):
            queues[entry.key] = Standing(entry.offset, entry.serial)
        elif isinstance(entry, QueueImage):
            standing = queues[entry.key] = Standing(entry.committed, entry.next_serial)
            standing.apply(entry)


def image_of(queues: dict[GroupQueue, Standing], *, now_ms: int) -> Iterator[QueueImage]:
    """Entries that recreate the same queues; see `Standing.image`."""
    for key in list(queues):
        standing = queues.get(key)
        if standing is not None:
            yield from standing.image(key, now_ms)


def file_reader(journal_end: int) -> Callable[[bytes], PopJournalState]:
    """For `read_with_backup`: reads the file, given that the journal has `journal_end` records."""

    def read(data: bytes) -> PopJournalState:
        entries: list[Any]
        place, entries = read_file(
            POP_MAGIC, data, decode_entry, journal_end=journal_end, subject="messages in flight"
        )
        queues: dict[GroupQueue, Standing] = {}
        apply_entries(queues, entries)
        return PopJournalState(queues, place)

    return read
