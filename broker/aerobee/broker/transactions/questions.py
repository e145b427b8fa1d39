"""The question to a producer about its transaction, and who can deliver it.

Each protocol whose producers begin transactions has one `Producers`; `Transactions.producers` has
them all. An answer is an ordinary end.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import HalfMessage


class Question(NamedTuple):
    """How does this transaction end?"""

    half: HalfMessage
    record: Record
    """The half message as stored."""
    checks: int
    """How often its producers have been asked, including this time."""


class Producers(Protocol):
    """The producers that speak one protocol."""

    def ask(self, question: Question) -> bool:
        """Whether a producer of the message's topic is being asked. Does not wait, and keeps only a
        bounded number of questions that were not sent yet."""
        ...
