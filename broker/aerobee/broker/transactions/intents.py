"""The one fact needed besides Apache's topics: which commits are under way.

Commits store their messages, and then an op message that marks their half messages done. A log that
ends between them has delivered messages whose half messages still wait. So an intent comes first:
it says where in its queue each message will be. Nothing else is stored between the intent and the
op message, and no commit begins before the last ones have their op message. So a new master reads
only the newest intent and checks the places that it names: the op message is missing for the
messages that are there; of the others nothing has happened and nothing was acknowledged.

An intent that is followed by another, or whose half messages are done, has no further meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

TRANSACTION_JOURNAL_TOPIC: Final = "AEROBEE_TRANSACTION_JOURNAL"


class Commit(NamedTuple):
    """`half_offset` and `half_position` are the half message's; the message will be at `offset` of
    its queue. `also_done` are other records of the same transaction."""

    half_offset: int
    half_position: int
    topic: str
    queue_id: int
    offset: int
    also_done: tuple[int, ...] = ()

    @property
    def offsets(self) -> list[int]:
        """All records of the half topic that it marks done."""
        return [*self.also_done, self.half_offset]


class CommitIntent(NamedTuple):
    """Commits in the order in which their messages are stored, at least one. `is_aside`: their half
    messages are records of the topic of set-aside messages."""

    commits: Sequence[Commit]
    is_aside: bool = False

    def encode(self) -> bytes:
        """As a record's body.

        It names the last message, and every record that is done once that is stored, because
        version 0.1.0 knows no more than one commit in an intent. The others are in `before`.
        """
        *others, last = self.commits
        also_done = [offset for each in others for offset in each.offsets]
        value: dict[str, Any] = {
            "kind": "commit",
            "half": [last.half_offset, last.half_position],
            "alsoDone": [*also_done, *last.also_done],
            "queue": [last.topic, last.queue_id, last.offset],
            "isAside": self.is_aside,
        }
        if others:
            value["before"] = others
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """None: it is of another kind. Raises ValueError: it is damaged."""
        try:
            value = json.loads(body)
            if value["kind"] != "commit":
                return None
            others = [_commit(*each) for each in value.get("before", ())]
            known = {offset for each in others for offset in each.offsets}
            own = [offset for offset in value["alsoDone"] if offset not in known]
            (half_offset, half_position), (topic, queue_id, offset) = value["half"], value["queue"]
            last = _commit(half_offset, half_position, topic, queue_id, offset, own)
            return cls((*others, last), bool(value.get("isAside", False)))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"the intent of a commit is damaged: {error}") from None


def _commit(
    half_offset: Any, half_position: Any, topic: Any, queue_id: Any, offset: Any, also_done: Any
) -> Commit:
    return Commit(
        int(half_offset),
        int(half_position),
        str(topic),
        int(queue_id),
        int(offset),
        tuple(map(int, also_done)),
    )
