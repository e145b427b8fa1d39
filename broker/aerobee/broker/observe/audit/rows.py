"""Rows of an audit's tables, in columns: copies that take little memory and are quick to send.

A piece has so few rows that the loop can fill it, or turn it into a message, without a noticeable
delay. Each piece has a name only once; rows have its number.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from aerobee.broker.delayed.counts import WaitingCount
from aerobee.broker.groups.members import Member
from aerobee.broker.groups.queue_leases import Lease
from aerobee.store.engine.tables.config_tables import TopicConfig

UNKNOWN = -1
ROWS_MAX = 2_048
"""From this many rows on, a piece takes no rows of another name."""


class Names:
    """Names with their numbers, in the order of first use."""

    __slots__ = ("_codes", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self.names)
            self.names.append(name)
        return code


class CommitRows:
    """Committed offsets. Unknown: epoch and time -1, client empty."""

    def __init__(self) -> None:
        self.groups, self.topics, self.clients = Names(), Names(), Names()
        self.group_codes = array("I")
        self.topic_codes = array("I")
        self.queue_ids = array("i")
        self.offsets = array("q")
        self.lease_epochs = array("q")
        self.committed_at_ms = array("q")
        self.client_codes = array("I")
        self.resets: list[bool] = []
        self.first_unread_ms: Sequence[int] = ()
        self.matching_unread: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= ROWS_MAX

    def names(self, row: int) -> tuple[str, str]:
        """The group and the topic of a row."""
        return (
            self.groups.names[self.group_codes[row]],
            self.topics.names[self.topic_codes[row]],
        )


class QueueRows:
    """Queues and their bounds."""

    def __init__(self) -> None:
        self.topics = Names()
        self.topic_codes = array("I")
        self.queue_ids = array("i")
        self.min_offsets = array("q")
        self.max_offsets = array("q")
        self.last_store_ms: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.queue_ids)

    @property
    def is_full(self) -> bool:
        return len(self.queue_ids) >= ROWS_MAX

    def add(self, topic: str, queue_id: int, min_offset: int, max_offset: int) -> None:
        self.topic_codes.append(self.topics.code(topic))
        self.queue_ids.append(queue_id)
        self.min_offsets.append(min_offset)
        self.max_offsets.append(max_offset)


class SegmentRows:
    """Segments of the log: where each begins, the bytes in use, its first record's store time."""

    def __init__(self, positions: Sequence[int], sizes: Sequence[int]) -> None:
        self.positions = positions
        self.sizes = sizes
        self.first_store_ms: Sequence[int] = [UNKNOWN] * len(positions)

    def __len__(self) -> int:
        return len(self.positions)


class LeaseRows(list[Lease]):
    """Queue leases."""


class TopicRows(list[TopicConfig]):
    """Topics."""


class MemberRows(list[Member]):
    """Members of groups, as of `now_s`."""

    now_s = 0.0


class EpochRows(list[tuple[int, int]]):
    """Epochs and where each begins in the log."""


class WaitingRows(list[WaitingCount]):
    """Waiting messages, by destination topic."""


class MinuteRows:
    """Acknowledged messages by topic and minute; complete from `first_whole_minute` on."""

    def __init__(self) -> None:
        self.topics = Names()
        self.topic_codes = array("I")
        self.minutes = array("q")
        self.acknowledged = array("q")
        self.first_whole_minute = 0

    def __len__(self) -> int:
        return len(self.minutes)

    @property
    def is_full(self) -> bool:
        return len(self.minutes) >= ROWS_MAX

    def add(self, topic: str, minute: int, acknowledged: int) -> None:
        self.topic_codes.append(self.topics.code(topic))
        self.minutes.append(minute)
        self.acknowledged.append(acknowledged)


Rows = (
    CommitRows
    | QueueRows
    | SegmentRows
    | LeaseRows
    | TopicRows
    | MemberRows
    | EpochRows
    | MinuteRows
    | WaitingRows
)
"""One piece of one table."""
