"""What may keep a message source from giving what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import MqError

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages [begin, end) of a queue that cannot be read, and why."""

    queue: MessageQueue
    begin: int
    end: int
    reason: str

    @property
    def count(self) -> int:
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.queue} offsets [{self.begin}, {self.end}) ({self.reason})"


class MessagesLost(MqError):
    """Messages between the offsets that were to be read are gone, and `failOnDataLoss` is true."""


def lost(losses: Iterable[Loss]) -> MessagesLost:
    """The error that names what is gone."""
    found = list(losses)
    count = sum(loss.count for loss in found)
    named = "; ".join(str(loss) for loss in found[:_NAMED_MAX])
    more = f"; and {len(found) - _NAMED_MAX} more ranges" if len(found) > _NAMED_MAX else ""
    told = f"{count} messages that were to be read are"
    if count == 1:
        told = "1 message that was to be read is"
    return MessagesLost(
        f"{told} gone: {named}{more}. Set failOnDataLoss=false "
        "to go on without them; a query that may lose nothing must start again, with another "
        "checkpoint and the offsets that are left."
    )
