"""What an operator can set about Apache's clients, at every node that answers them."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.runtime.config import require
from aerobee.store.format.delay_levels import DELAY_MAX_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqConfig:
    """Apache RocketMQ's API."""

    delay_max_ms: int = 86_400_000
    """How far in the future Apache's clients may send; the default is Apache's. Set it to the same
    value on all nameservers and brokers, because the node that gets the message decides.

    Costs: a message takes space on the disk while it waits.
    """

    def __post_init__(self) -> None:
        require(
            0 < self.delay_max_ms <= DELAY_MAX_MS,
            f"rocketmq.delay_max_ms must be 1 to {DELAY_MAX_MS}",
            self.delay_max_ms,
        )

    def sending(self) -> SendLimits:
        """The limits of messages."""
        return SendLimits(delay_ms_max=self.delay_max_ms)
