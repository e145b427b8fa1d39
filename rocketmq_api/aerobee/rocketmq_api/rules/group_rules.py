"""Where a consumer group begins, and what its settings say: order, how often, and after which
delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from aerobee.store.format.delay_levels import DelayLevels
from aerobee.store.format.retry_delays import Exponential, Steps
from aerobee.store.format.retry_records import RETRIES_MAX

APACHES: Final = Steps(DelayLevels.parse().delays_ms)
"""For a group that has no rule of its own."""


def begin_offset(queue_begin: int, queue_end: int) -> int:
    """Where a new group begins to consume a queue, unless its client decides: at the first message
    if none was ever removed, otherwise at the next one to arrive."""
    return queue_begin if queue_begin == 0 else queue_end


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What a group's settings say to its members; the defaults are those of a new group."""

    is_ordered: bool = False
    retries_max: int = RETRIES_MAX
    delays: Exponential | Steps = APACHES

    @classmethod
    def told(
        cls,
        *,
        is_ordered: bool,
        retries_max: int,
        growing: tuple[int, int, int] | None = None,
        steps_ms: Sequence[int] = (),
    ) -> Self:
        """As other nodes send them; `growing`: the initial delay, the longest, and the factor
        between delays. Without delays they are Apache's."""
        delays: Exponential | Steps = Exponential(*growing) if growing else APACHES
        return cls(is_ordered, retries_max, Steps(tuple(steps_ms)) if steps_ms else delays)

    @property
    def attempts_max(self) -> int:
        """Deliveries of a message before it is a dead letter."""
        return self.retries_max + 1
