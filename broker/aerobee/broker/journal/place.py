"""How much of its journal a state knows, and the file that saves reading all of it at a start.

Owns: the place and its arithmetic, and the bytes of the file: magic and CRC, the place, and the
state as entries of the journal. The file must not know more than the journal, whose end a power
failure may have cut off. So a file that is ahead of the journal is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd, body_of, read_body
from aerobee.store.format.progress_file import seal, unseal

Entry = TypeVar("Entry")

_NOWHERE: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Without arguments: the place before the first record of a journal."""

    next_offset: int = 0
    image_position: int = 0
    is_whole: bool = True
    whole_from: int = 0
    """An image that begins here or later makes the state whole again."""

    @property
    def whole_position(self) -> int:
        """See `JournalState.image_position`. A journal without records contains everything: nothing
        has happened yet."""
        return self.image_position if self.next_offset else _NOWHERE

    def after(self, entries: Sequence[object], queue_offset: int) -> Place:
        """The place after the next record is applied."""
        assert queue_offset == self.next_offset, "records count in the order of the journal"
        image_position, is_whole = self.image_position, self.is_whole
        for entry in entries:
            if isinstance(entry, ImageEnd) and entry.first_offset >= self.whole_from:
                image_position, is_whole = entry.position, True
        return Place(queue_offset + 1, image_position, is_whole, self.whole_from)

    def skipped_to(self, queue_offset: int) -> Place:
        """The place if the records before this one are gone or cannot be read."""
        assert queue_offset > self.next_offset
        return Place(queue_offset, UNKNOWN_IMAGE, is_whole=False, whole_from=queue_offset)


class Placed:
    """What a `JournalState` says of its place."""

    def __init__(self, place: Place | None) -> None:
        """None: the place before the first record of a journal."""
        self._place = place or Place()

    @property
    def next_offset(self) -> int:
        return self._place.next_offset

    @property
    def image_position(self) -> int:
        return self._place.whole_position

    @property
    def is_whole(self) -> bool:
        return self._place.is_whole


def encode_file(magic: str, place: Place, texts: Iterable[str]) -> bytes:
    """The file of a state at this place, with its entries as JSON."""
    head = [place.next_offset, place.image_position, place.is_whole, place.whole_from]
    return seal(magic, head, body_of(texts).decode())


def read_file(
    magic: str,
    data: bytes,
    decode: Callable[[dict[str, Any]], Entry | None],
    *,
    journal_end: int,
    subject: str,
) -> tuple[Place, list[Entry | ImageEnd]]:
    """The content of a file, if the journal has `journal_end` records. `subject` is for errors.

    Raises:
        ValueError: the file must be ignored.
    """
    numbers, body = unseal(magic, data, subject)
    assert isinstance(numbers, list)
    place = Place(*numbers)
    if place.next_offset > journal_end:
        raise ValueError(f"the file of {subject} is ahead of its journal")
    return place, read_body(body.encode(), decode)
