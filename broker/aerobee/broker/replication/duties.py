"""What only a master does: duties that begin and end with its term.

Owns: their order, the same for every step.

    begin    this replica acts as master from now on
    leave    what the next master must know is written down, while this one may still act
    resume   the next master did not come: the term continues after all
    end      this replica stops acting, whether or not it was left properly

Only the role manager begins and ends them; a hand-over leaves and resumes them, a stop leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from aerobee.broker.replication.master_term import MasterTerm


class Duty(Protocol):
    """A duty. A method that a duty does not need does nothing."""

    def begin(self, term: MasterTerm) -> None:
        """Act under `term`, in place of an earlier one if that has not ended. Does not wait."""
        return

    async def leave(self) -> None:
        """Record what the next master needs, then do nothing until `begin` or `resume`. Also called
        on a slave that stops.

        Raises StoreFailed.
        """
        return

    def resume(self) -> None:
        """Continue the term that was left, unless it has ended meanwhile."""
        return

    def end(self) -> None:
        """Stop acting. Does not wait."""
        return


class Duties(Duty):
    """All duties of a master, one after the other."""

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = tuple(duties)

    def begin(self, term: MasterTerm) -> None:
        for duty in self._duties:
            duty.begin(term)

    async def leave(self) -> None:
        for duty in self._duties:
            await duty.leave()

    def resume(self) -> None:
        for duty in self._duties:
            duty.resume()

    def end(self) -> None:
        for duty in self._duties:
            duty.end()


class OnChange(Duty):
    """Notifies a part that reads the roles itself that they have changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def begin(self, term: MasterTerm) -> None:
        self._changed()

    def end(self) -> None:
        self._changed()
