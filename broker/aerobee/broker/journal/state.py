"""What a journal's client provides: the state on every replica, and a master's side of a term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aerobee.broker.journal.records import ImageEnd

if TYPE_CHECKING:
    from aerobee.broker.journal.writer import JournalWriter

Entry = TypeVar("Entry")


class JournalState(Protocol[Entry]):
    """The state that the journal describes up to one of its records. Every replica applies the same
    confirmed records in the same order, so all have the same state; applying a record again, with
    all that followed it, changes nothing."""

    @property
    def next_offset(self) -> int:
        """The number of the first record that is not applied yet."""
        ...

    @property
    def image_position(self) -> int:
        """The log from this position on has the whole state; UNKNOWN_IMAGE: perhaps it does not."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether the whole state is known here; after a gap it is not, until an image that began
        after the gap has ended."""
        ...

    def encode(self, entry: Entry) -> str:
        """The entry as a JSON object with a `kind`."""
        ...

    def decode(self, value: dict[str, Any]) -> Entry | None:
        """The inverse; see `records.read_body`."""
        ...

    def apply(self, entries: Sequence[Entry | ImageEnd], queue_offset: int) -> None:
        """Apply the next record."""
        ...

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are gone or cannot be read."""
        ...


class JournalTerm(Protocol[Entry]):
    """A client's side of one term as master: the state once all that waits is confirmed."""

    def counted(self, entries: Sequence[Entry | ImageEnd]) -> None:
        """A record is confirmed and applied; its waiters have not been told yet."""
        ...

    def dropped(self, waiting: Iterable[Entry | ImageEnd]) -> None:
        """A record could not be appended: restore the state as if its entries had never been added.
        `waiting` are the entries that still wait."""
        ...

    def image(self) -> Iterator[Entry]:
        """The whole state as entries. Each is added as soon as it is yielded, and other entries
        come in between: so it must say what will hold once those before it are in effect."""
        ...


Term_co = TypeVar("Term_co", bound=JournalTerm[Any], covariant=True)


class JournalClient(Protocol[Entry, Term_co]):
    """Notified of the terms in which this replica writes the journal."""

    def begin(self, writer: JournalWriter[Entry], epoch: int, *, is_unclean: bool) -> Term_co:
        """Everything in the log is confirmed and applied. `is_unclean`: the epoch began without an
        in-sync replica, so messages that clients have seen may be gone."""
        ...

    def end(self) -> None:
        """This replica writes no more."""
        ...
