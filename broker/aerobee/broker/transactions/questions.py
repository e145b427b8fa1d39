"""The question that a producer is asked about its transaction, and who can carry it there.

Each protocol whose producers begin transactions has one `Producers`; `Transactions.producers` has
them all. An answer is an ordinary end.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from aerobee.store_format.record_view import Record
from aerobee.store_format.transaction_records import HalfMessage


class Question(NamedTuple):
    """How does this transaction end?"""

    half: HalfMessage
    record: Record
    """The half message, as it is stored."""
    checks: int
    """How often its producers have been asked, with this time."""


class Producers(Protocol):
    """Those that speak one protocol."""

    def ask(self, question: Question) -> bool:
        """Whether a producer of the message's topic is being asked. Does not wait, and keeps no
        more than a bounded number of questions that are not on their way yet."""
        ...
