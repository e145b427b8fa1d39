"""Op messages: which half messages are done, and how.

Owns: those that must follow what is already stored. They are written in order, and what is stored
identifies them if this master dies before.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aerobee.broker.reading.handed import Handed
from aerobee.broker.sending.halves import HALF_QUEUE
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.pending import TransactionName
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.store.format.transaction_records import (
    ASIDE_TOPIC,
    OP_TOPIC,
    Outcome,
    op_body,
    op_properties,
)

log = logging.getLogger(__name__)


class OpMessage(NamedTuple):
    """`offsets` of the half topic are done; `names` are the transactions that end with it.
    `is_aside`: they are offsets of the topic of set-aside messages."""

    outcome: Outcome
    offsets: Sequence[int]
    names: Sequence[TransactionName] = ()
    is_aside: bool = False


class OpMessages:
    """On the loop."""

    def __init__(
        self,
        writes: OwnWrites,
        *,
        on_written: Callable[[OpMessage, int], None],
        on_owing: Callable[[], None],
    ) -> None:
        """`on_written` gets each op message and where it ends. `on_owing`: `pay` must be called
        soon."""
        self._writes = writes
        self._on_written = on_written
        self._on_owing = on_owing
        self._owed: deque[OpMessage] = deque()
        self.handed: Handed[OpMessage] = Handed()

    def __len__(self) -> int:
        """How many are missing."""
        return len(self._owed)

    def write(self, op: OpMessage) -> None:
        """Raises AerobeeError: nothing was written."""
        # Even on a full disk: it is small, and what is done can be removed.
        appended = self._writes.append(
            ASIDE_TOPIC if op.is_aside else OP_TOPIC,
            HALF_QUEUE,
            op_body(op.offsets),
            properties=op_properties(op.outcome),
            reserve=True,
        )
        if not op.is_aside:
            self.handed.append(appended.base_queue_offset, appended.end, op)
        self._on_written(op, appended.end)

    def owe(self, op: OpMessage) -> None:
        """Write it at once if possible."""
        self._owed.append(op)
        try:
            self.pay()
        except StoreFailed:
            raise
        except AerobeeError as error:
            log_event(log, "an op message waits to be written", level=logging.WARNING, reason=error)
            self._on_owing()

    def pay(self) -> None:
        """Write what could not be written with its message. Raises AerobeeError: it is still not
        possible."""
        while self._owed:
            self.write(self._owed[0])
            self._owed.popleft()

    def forget(self) -> None:
        """The term is over: the next master finds out what is missing."""
        self._owed.clear()
        self.handed.clear()
