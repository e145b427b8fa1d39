"""Where to start in a queue without a committed offset.

Asked of the master alone: a slave may know less, and a group that starts there would be given what
came before it joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client_core.message import MessageQueue
from aerobee.client_core.offsets import Offsets
from aerobee.consumer_client.options import StartFrom
from aerobee.runtime.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Asked only where the group never committed: a committed offset always wins."""

    start_from: StartFrom = StartFrom.LAST
    timestamp_ms: int | None = None
    """Unix ms; with TIMESTAMP only."""

    def __post_init__(self) -> None:
        if (self.timestamp_ms is None) == (self.start_from is StartFrom.TIMESTAMP):
            raise InvalidArgument(
                "give start_timestamp_ms with StartFrom.TIMESTAMP, and only with it"
            )

    async def start_offset(self, offsets: Offsets, queue: MessageQueue) -> int:
        """The first offset to read.

        Raises:
            MqError: the broker could not be asked.
        """
        if self.timestamp_ms is not None:
            return (await offsets.by_timestamp([queue], self.timestamp_ms, of_master=True))[queue]
        bounds = (await offsets.bounds([queue], of_master=True))[queue]
        if self.start_from is StartFrom.FIRST:
            return bounds.min_offset
        return bounds.max_offset_end
