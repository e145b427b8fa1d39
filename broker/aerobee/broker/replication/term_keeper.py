"""The term of a duty that works in steps, with waiting in between.

Owns: whether the duty may act, and whether what it began before a wait may still count.

    begin    act under this term; in place of a term that has not ended it continues without a break
    leave    do not act: what was begun counts no more
    resume   act again under the term that was left, from the beginning
    end      do not act; what was left is not resumed any more

A stretch is the time between two such breaks. What was begun in one stretch ends with it, and the
next one begins anew: a step that continued after the break would count what the break kept it from
doing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from aerobee.runtime.errors import NotMaster

Term = TypeVar("Term")


class Stretch(Generic[Term]):
    """A time in which a duty acts without a break."""

    __slots__ = ("is_over", "term")

    def __init__(self, term: Term) -> None:
        self.term = term
        """The newest term that was begun in it."""
        self.is_over = False

    def check(self) -> None:
        """Call it after each wait, before anything is written. Raises NotMaster: what was begun in
        this stretch must not be continued."""
        if self.is_over:
            raise NotMaster("this replica's term as master has just ended or was left")


class TermKeeper(Generic[Term]):
    """At most one stretch at a time; on the loop."""

    def __init__(self) -> None:
        self.stretch: Stretch[Term] | None = None
        """None: do nothing."""
        self._left: Term | None = None

    def __repr__(self) -> str:
        return f"TermKeeper(acts={self.stretch is not None}, left={self._left is not None})"

    @property
    def is_master(self) -> bool:
        """Whether a term has begun and not ended, even if it was left."""
        return self.stretch is not None or self._left is not None

    def begin(self, term: Term) -> Stretch[Term] | None:
        """The stretch that begins now; None: the present one continues, under this term."""
        self._left = None
        if self.stretch is not None:
            self.stretch.term = term
            return None
        self.stretch = Stretch(term)
        return self.stretch

    def leave(self) -> None:
        """Without effect unless a stretch has begun."""
        if self.stretch is not None:
            self._left = self.stretch.term
            self._break()

    def resume(self) -> Stretch[Term] | None:
        """The stretch that begins now; None: nothing was left."""
        return None if self._left is None else self.begin(self._left)

    def end(self) -> None:
        """In any state."""
        self._left = None
        self._break()

    def _break(self) -> None:
        stretch, self.stretch = self.stretch, None
        if stretch is not None:
            stretch.is_over = True
