"""The one fact needed besides Apache's topics: which commit is under way.

A commit stores two records: the message, and the op message that marks its half message done. A log
that ends between them has a delivered message and a half message that still waits. So an intent
comes first: it says where in its queue the message will be. Nothing is stored between the three,
and no commit begins before the last one has its op message. So a new master reads only the newest
intent and checks that one place: if the message is there, only the op message is missing; if it is
not, nothing has happened and nothing was acknowledged.

An intent that is followed by another, or whose half message is done, has no further meaning.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple, Self

TRANSACTION_JOURNAL_TOPIC: Final = "AEROBEE_TRANSACTION_JOURNAL"


class CommitIntent(NamedTuple):
    """`half_offset` and `half_position` are the half message's; the message will be at `offset` of
    its queue. `also_done` are other records of the same transaction. `is_aside`: these are records
    of the topic of set-aside messages."""

    half_offset: int
    half_position: int
    topic: str
    queue_id: int
    offset: int
    also_done: tuple[int, ...] = ()
    is_aside: bool = False

    @property
    def offsets(self) -> list[int]:
        """All records of the half topic that it marks done."""
        return [*self.also_done, self.half_offset]

    def encode(self) -> bytes:
        """As a record's body."""
        value = {
            "kind": "commit",
            "half": [self.half_offset, self.half_position],
            "alsoDone": list(self.also_done),
            "queue": [self.topic, self.queue_id, self.offset],
            "isAside": self.is_aside,
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """None: it is of another kind. Raises ValueError: it is damaged."""
        try:
            value = json.loads(body)
            if value["kind"] != "commit":
                return None
            half_offset, half_position = map(int, value["half"])
            topic, queue_id, offset = value["queue"]
            also_done = tuple(map(int, value["alsoDone"]))
            return cls(
                half_offset,
                half_position,
                str(topic),
                int(queue_id),
                int(offset),
                also_done,
                bool(value.get("isAside", False)),
            )
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"the intent of a commit is damaged: {error}") from None
