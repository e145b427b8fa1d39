"""PURE: when a failed message is redelivered, and after how many failures it is a dead letter.

Each group has its policy, in Apache's members of subscriptionGroup.json: `retryMaxTimes` and
`groupRetryPolicy`. Apache's `CUSTOMIZED` without a list of its own means the delay levels from the
third on; with a list, or with `EXPONENTIAL`, messages wait for a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from aerobee.store.engine.tables.config_tables import SubscriptionGroupConfig
from aerobee.store.format.delay_levels import DELAY_MAX_MS, DelayLevels
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.json_config import JsonValue
from aerobee.store.format.retry_delays import IN_ORDER, Exponential, Steps
from aerobee.store.format.retry_records import RETRIES_MAX, retry_level

POLICY_MEMBER: Final = "groupRetryPolicy"
LIMIT_IS_SET: Final = "aerobee.retries.set"
"""The attribute of a group whose `retryMaxTimes` was chosen, although it may be the default."""
RETRIES_LIMIT: Final = 100_000
"""The highest `retryMaxTimes` that is accepted from operators and clients."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A group's policy. `back_off` None: the delay levels."""

    retries_max: int = RETRIES_MAX
    """Redeliveries of a message before it becomes a dead letter; below 0: Apache's default."""
    back_off: Exponential | Steps | None = None
    is_ordered: bool = False
    """A redelivered message holds back the later messages of its message group."""
    is_limit_set: bool = False
    """Somebody chose `retries_max`."""

    @classmethod
    def of(cls, config: SubscriptionGroupConfig | None) -> Self:
        """The policy in a group's configuration; None: the default. What cannot be read is treated
        as absent."""
        if config is None:
            return cls()
        back_off = _back_off_of(config.unknown.get(POLICY_MEMBER))
        is_set = config.retry_times_max != RETRIES_MAX or LIMIT_IS_SET in config.attributes
        return cls(config.retry_times_max, back_off, config.consume_orderly, is_set)

    @property
    def limit(self) -> int:
        """`retries_max`, or the default if it is negative."""
        return RETRIES_MAX if self.retries_max < 0 else self.retries_max

    @property
    def limit_in_order(self) -> int | None:
        """As `limit`, for a message that holds up its queue; None: no limit. A default that gives
        up would break the order of a queue in each outage."""
        return self.retries_max if self.is_limit_set and self.retries_max >= 0 else None

    @property
    def back_off_in_order(self) -> Exponential:
        """How long such a message waits."""
        return self.back_off if isinstance(self.back_off, Exponential) else IN_ORDER

    def delay(
        self,
        times: int,
        now_ms: int,
        levels: DelayLevels,
        *,
        asked_level: int = 0,
        retries_max: int | None = None,
        asked_ms: int = 0,
    ) -> Delay | None:
        """How long a message waits after `times` redeliveries; None: it is a dead letter.

        `asked_level`: the consumer's wish, as `retry_level`; `asked_ms`: its wish in milliseconds,
        or 0; `retries_max`: the consumer's.
        """
        limit = self.limit if retries_max is None or retries_max < 0 else retries_max
        level = retry_level(times, retries_max=limit, asked_level=asked_level)
        if level is None:
            return None
        if asked_ms > 0:
            return Delay(deliver_ms=now_ms + min(asked_ms, DELAY_MAX_MS))
        if self.back_off is None or asked_level:
            return Delay(level=levels.capped(level)) if len(levels) else Delay(level=level)
        return Delay(deliver_ms=now_ms + self.back_off.delay_ms(max(0, times)))


def policy_member(back_off: Exponential | Steps | None) -> JsonValue:
    """`groupRetryPolicy` for a back-off policy."""
    if back_off is None:
        return {"type": "CUSTOMIZED"}
    if isinstance(back_off, Steps):
        return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [*back_off.delays_ms]}}
    return {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {
            "initial": back_off.initial_ms,
            "max": back_off.max_ms,
            "multiplier": back_off.multiplier,
        },
    }


def _back_off_of(member: Any) -> Exponential | Steps | None:
    if not isinstance(member, dict):
        return None
    if member.get("type") == "EXPONENTIAL":
        told = member.get("exponentialRetryPolicy")
        told = told if isinstance(told, dict) else {}
        default = Exponential()
        return Exponential(
            _whole(told.get("initial"), default.initial_ms),
            _whole(told.get("max"), default.max_ms),
            _whole(told.get("multiplier"), default.multiplier),
        )
    told = member.get("customizedRetryPolicy")
    steps = told.get("next") if isinstance(told, dict) else None
    if isinstance(steps, list) and steps and all(_is_delay(each) for each in steps):
        return Steps(tuple(steps))
    return None


def _is_delay(value: object) -> bool:
    return type(value) is int and 0 < value <= DELAY_MAX_MS


def _whole(value: Any, default: int) -> int:
    return value if _is_delay(value) else default
