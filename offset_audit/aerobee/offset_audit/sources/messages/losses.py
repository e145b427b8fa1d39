"""What a reader does about missing messages: it fails, or it counts them and continues."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.record_arrays import Int64Array

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


class MessagesLost(AerobeeError):
    """Messages between the offsets to read are gone, and `failOnDataLoss` is true."""


def _lost(losses: Iterable[Loss]) -> MessagesLost:
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


log = logging.getLogger(__name__)


@dataclass(slots=True)
class LossRule:
    """One reader's rule, and its count. Picklable."""

    fails: bool
    count: int = 0

    def apply(self, losses: Iterable[Loss]) -> None:
        """Raises MessagesLost if that is the rule and something is missing."""
        found = [loss for loss in losses if loss.count > 0]
        if not found:
            return
        error = _lost(found)
        if self.fails:
            raise error
        self.count += sum(loss.count for loss in found)
        log.warning(
            "failOnDataLoss=false: going on without %d messages: %s",
            sum(loss.count for loss in found),
            "; ".join(map(str, found[:20])),
        )


def losses_of(queue: MessageQueue, offsets: Int64Array, reason: str) -> list[Loss]:
    """Single offsets of a queue, rising, as ranges."""
    losses: list[Loss] = []
    for offset in offsets.tolist():
        if losses and losses[-1].end == offset:
            losses[-1] = Loss(queue, losses[-1].begin, offset + 1, reason)
        else:
            losses.append(Loss(queue, offset, offset + 1, reason))
    return losses
