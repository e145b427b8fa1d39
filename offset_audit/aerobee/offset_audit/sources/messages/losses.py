"""What a reader does about messages that are gone: it fails, or it counts them and goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.errors import Loss, lost
from aerobee.store_format.record_arrays import Int64Array

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LossRule:
    """One reader's rule, and its count. Picklable."""

    fails: bool
    count: int = 0

    def apply(self, losses: Iterable[Loss]) -> None:
        """Raises MessagesLost if that is the rule and something is gone."""
        found = [loss for loss in losses if loss.count > 0]
        if not found:
            return
        error = lost(found)
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
