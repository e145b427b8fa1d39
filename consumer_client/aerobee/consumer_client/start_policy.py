"""Where to start in a queue without a committed offset.

Asked of the master alone: a slave may know less, and a group that starts there would be given what
came before it joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from aerobee.client_core.offsets import Offsets
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.options import StartFrom
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.whole_number import check_whole_number


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Asked only where the group never committed: a committed offset always wins."""

    start_from: StartFrom = StartFrom.LAST
    timestamp_ms: int | None = None
    """Unix ms; with TIMESTAMP only."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "start_from", StartFrom(self.start_from))
        except ValueError:
            raise InvalidArgument(
                f"start_from must be one of {', '.join(StartFrom)}, not {self.start_from!r}"
            ) from None
        if self.timestamp_ms is not None:
            check_whole_number("start_timestamp_ms", self.timestamp_ms, minimum=0)
        if (self.timestamp_ms is None) == (self.start_from is StartFrom.TIMESTAMP):
            raise InvalidArgument(
                "give start_timestamp_ms with StartFrom.TIMESTAMP, and only with it"
            )

    def for_new_queues(self) -> Self:
        """The policy for queues that are younger than their group: there is nothing in them that
        the group came too late for."""
        return type(self)(StartFrom.FIRST) if self.start_from is StartFrom.LAST else self

    async def start_offsets(
        self, offsets: Offsets, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """The first offsets to read.

        Raises:
            MqError: a broker could not be asked.
        """
        if self.timestamp_ms is not None:
            return await offsets.by_timestamp(queues, self.timestamp_ms, of_master=True)
        bounds = await offsets.bounds(queues, of_master=True)
        if self.start_from is StartFrom.FIRST:
            return {queue: found.min_offset for queue, found in bounds.items()}
        return {queue: found.max_offset_end for queue, found in bounds.items()}
