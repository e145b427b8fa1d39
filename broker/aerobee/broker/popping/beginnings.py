"""A group begins to consume a queue by POP: where, and that nobody else consumes it.

Invariant: POP has a queue only while the offset journal has an offset of the group there. So
anything that removes the offset, such as the end of a topic or of a group, also ends POP, under any
master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from aerobee.broker.groups.ownership import Ownership
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.pop.requests import Poll
from aerobee.broker.pop.term import PopTerm
from aerobee.broker.popping.confirmed import until_confirmed
from aerobee.rocketmq_api.rules.group_rules import begin_offset
from aerobee.runtime.errors import Busy
from aerobee.store.engine.tables.finished_ranges import Range


class Beginnings:
    """On the loop."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        ownership: Ownership,
        *,
        writer: Callable[[], PopTerm],
        bounds: Callable[[str, int], tuple[int, int]],
    ) -> None:
        """`writer` as in `Pops`; `bounds`: a queue's first offset, and that of its next message."""
        self._offsets = offsets
        self._ownership = ownership
        self._writer = writer
        self._bounds = bounds

    async def begin(self, key: GroupQueue, poll: Poll) -> None:
        """POP starts to consume the queue where the group was; if it is new, at the first message
        if the poll says so, and otherwise at `begin_offset`.

        Raises:
            LeaseHeld: members consume it under leases.
            AerobeeError: as `ConsumerOffsets.begin` and `ConsumerOffsets.check_master`.
        """
        self._check_unclaimed(key)
        if self._offsets.query(key) is None:
            first, end = self._bounds(key.topic, key.queue_id)
            offset = first if poll.begins_at_first else begin_offset(first, end)
            await until_confirmed(self._offsets.begin(key, offset))
            self._check_unclaimed(key)
        committed = self._offsets.query(key)
        if committed is None:
            raise Busy(f"the offset of group {key.group} was removed meanwhile; try again")
        term = self._writer()
        if not term.has(key):
            await until_confirmed(term.begin(key, committed))

    def _check_unclaimed(self, key: GroupQueue) -> None:
        """Before the lease run begins nobody knows who may believe that it holds a queue."""
        self._offsets.check_master()
        self._ownership.check_unclaimed(key)


def finished_by(state: OffsetJournalState, key: GroupQueue) -> Iterable[Range] | None:
    """What the group has finished on a queue, as far as confirmed; None: it has nothing there."""
    standing = state.standing(key)
    if standing is None:
        return None
    beyond: Iterator[Range] = iter(state.finished_beyond(key) or ())
    return chain((Range(0, standing.offset),), beyond)
