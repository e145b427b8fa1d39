"""The promises that several worlds check, each stated once.

A world knows what was stored, promised and told. It passes that here, as plain values, at the
moment when a promise could break. What only one world can see is judged there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

T = TypeVar("T")


class Violation(AssertionError):
    """A promise is broken."""


def expect(holds: bool, promise: str) -> None:
    """Raises Violation with `promise` unless it holds."""
    if not holds:
        raise Violation(promise)


@dataclass(frozen=True, slots=True)
class Judge:
    """Every method raises Violation. `number`: of the invariant, in a world that numbers them.

    `what` is the message or the copy that is judged; it is put into words only for a violation.
    """

    number: str = ""

    def broken(self, said: str) -> NoReturn:
        raise Violation(f"{self.number}: {said}" if self.number else said)

    def keeps(self, is_there: bool, what: object) -> None:
        """Nothing that was acknowledged is lost."""
        if not is_there:
            self.broken(f"{what} is lost")

    def keeps_all(self, owed: Iterable[T], there: Container[T], kind: str = "message") -> None:
        """Nothing that was acknowledged is lost."""
        for each in owed:
            self.keeps(each in there, f"{kind} {each}" if kind else each)

    def once(self, before: Container[T], name: T, what: object) -> None:
        """Nothing is doubled: `name` is not among those that came before."""
        if name in before:
            self.broken(f"{what} came twice")

    def not_early(self, early_ms: int, what: object) -> None:
        """Nothing comes before its time."""
        if early_ms > 0:
            self.broken(f"{what} came {early_ms} ms early")

    def in_order(self, is_next: bool, what: object, of: str) -> None:
        """Nothing overtakes an unfinished one before it, where order was asked for."""
        if not is_next:
            self.broken(f"{what} came before one of its {of} that is not done")

    def done_for_good(self, was_done: bool, what: object) -> None:
        """What a client was told is finished never comes again."""
        if was_done:
            self.broken(f"{what} came after it was finished")

    def attempts_rise(self, attempt: int, before: int, what: object) -> None:
        """Each delivery is counted: who gets a message again is told a higher number."""
        if attempt <= before:
            self.broken(f"the attempts of {what} do not rise: {before}, {attempt}")

    def attempts_end(self, attempt: int, attempts_max: int, what: object) -> None:
        """What fails is given up after so many deliveries."""
        if attempt > attempts_max:
            self.broken(f"{what} came for the {attempt}th time, {attempts_max} are allowed")

    def handle_is_valid(self, is_valid: bool, what: object) -> None:
        """The handle of an earlier delivery finishes nothing."""
        if not is_valid:
            self.broken(f"{what} was finished by a stale handle")
