"""What a journal's client brings: a state that every replica has, and a master's side of a term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aerobee.broker.journal.records import ImageEnd

if TYPE_CHECKING:
    from aerobee.broker.journal.writer import JournalWriter

Entry = TypeVar("Entry")


class JournalState(Protocol[Entry]):
    """What the journal says up to one of its records. Every replica applies the same confirmed
    records in the same order, so all have the same; a record that is applied again, with all that
    followed it, changes nothing."""

    @property
    def next_offset(self) -> int:
        """The number of the first record that is not applied."""
        ...

    @property
    def image_position(self) -> int:
        """From this log position on the journal says the whole state; UNKNOWN_IMAGE: perhaps it
        does not."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the whole state is known here; not after a gap, until an image has ended that
        began after it."""
        ...

    def encode(self, entry: Entry) -> str:
        """The entry as a JSON object with a `kind`."""
        ...

    def decode(self, value: dict[str, Any]) -> Entry | None:
        """The other way; see `records.read_body`."""
        ...

    def apply(self, entries: Sequence[Entry | ImageEnd], queue_offset: int) -> None:
        """The next record."""
        ...

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are not there any more, or cannot be read."""
        ...


class JournalTerm(Protocol[Entry]):
    """A client's side of one term as master: what will stand once all that waits is confirmed."""

    def counted(self, entries: Sequence[Entry | ImageEnd]) -> None:
        """A record is confirmed and applied; its waiters have not been told yet."""
        ...

    def dropped(self, waiting: Iterable[Entry | ImageEnd]) -> None:
        """A record could not be appended: all is as if its entries had never been added.
        `waiting` are those that still wait."""
        ...

    def image(self) -> Iterator[Entry]:
        """The whole state, said again. Each entry is added at the moment at which it is given, and
        others come in between: so it says what will stand when those before it count."""
        ...


Term_co = TypeVar("Term_co", bound=JournalTerm[Any], covariant=True)


class JournalClient(Protocol[Entry, Term_co]):
    """Told of the terms in which this replica writes the journal."""

    def begin(self, writer: JournalWriter[Entry], epoch: int, *, is_unclean: bool) -> Term_co:
        """All that the log has is confirmed and applied. `is_unclean`: the epoch began without an
        in-sync replica, so that messages which clients have seen may be gone."""
        ...

    def end(self) -> None:
        """This replica writes no more."""
        ...
