"""How each group's failed messages are redelivered, and changing that.

Owns: the limits of what operators may choose. The settings are in subscriptionGroup.json, which
slaves copy from their master; each replica set has its own, so a change goes to all masters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from aerobee.broker.retries.policy import (
    LIMIT_IS_SET,
    POLICY_MEMBER,
    RETRIES_LIMIT,
    RetryPolicy,
    policy_member,
)
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.tables.config_tables import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from aerobee.store.format.delay_levels import DELAY_MAX_MS, DelayLevels
from aerobee.store.format.json_config import JsonValue
from aerobee.store.format.retry_delays import Exponential

MULTIPLIER_MAX = 1_000


class RetrySettings:
    """On the loop."""

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        admit: Callable[[str], None],
        save: Callable[[], Awaitable[None]],
        levels: DelayLevels,
    ) -> None:
        """`admit` makes a group known, and raises LimitReached if there are too many. `save` writes
        the table. `levels`: the broker's."""
        self.levels = levels
        self._groups = groups
        self._admit = admit
        self._save = save

    def policy(self, group: str) -> RetryPolicy:
        """The group's effective policy; for an unknown group the default."""
        return RetryPolicy.of(self._groups.get(group))

    def names(self) -> list[str]:
        """The groups that have a policy of their own."""
        return [name for name in self._groups if self.policy(name) != RetryPolicy()]

    async def change(
        self,
        group: str,
        *,
        retries_max: int | None = None,
        uses_levels: bool = False,
        exponential: Exponential | None = None,
        is_ordered: bool | None = None,
    ) -> RetryPolicy:
        """Returns the effective policy, which is on disk; a setting that is None, or `uses_levels`
        False, stays unchanged.

        Raises:
            InvalidArgument, LimitReached: nothing has changed.
            NotWritable, StoreFailed: it is in effect, but not on disk.
        """
        if retries_max is not None and not 0 <= retries_max <= RETRIES_LIMIT:
            raise InvalidArgument(
                f"a message can be redelivered 0 to {RETRIES_LIMIT} times, not {retries_max}"
            )
        if exponential is not None:
            _check(exponential)
        self._admit(group)
        config = self._groups.get(group) or SubscriptionGroupConfig(name=group)
        if retries_max is not None:
            attributes = {**config.attributes, LIMIT_IS_SET: "true"}
            config = replace(config, retry_times_max=retries_max, attributes=attributes)
        if is_ordered is not None:
            config = replace(config, consume_orderly=is_ordered)
        if uses_levels or exponential is not None:
            unknown: dict[str, JsonValue] = dict(config.unknown)
            unknown[POLICY_MEMBER] = policy_member(exponential)
            config = replace(config, unknown=unknown)
        if self._groups.put(config):
            await self._save()
        return RetryPolicy.of(config)

    async def set_attribute(self, group: str, name: str, value: str) -> None:
        """Set an attribute of the group that is not of these settings, but is kept with them; "":
        remove it. Raises as `change`."""
        self._admit(group)
        config = self._groups.get(group) or SubscriptionGroupConfig(name=group)
        attributes = {**config.attributes, name: value}
        if not value:
            del attributes[name]
        if self._groups.put(replace(config, attributes=attributes)):
            await self._save()


def _check(back_off: Exponential) -> None:
    if not 0 < back_off.initial_ms <= back_off.max_ms <= DELAY_MAX_MS:
        raise InvalidArgument(
            f"a back-off begins with 1 ms or more and ends with {DELAY_MAX_MS} ms or less, not "
            f"{back_off.initial_ms} to {back_off.max_ms}"
        )
    if not 1 <= back_off.multiplier <= MULTIPLIER_MAX:
        raise InvalidArgument(
            f"the multiplier of a back-off must be 1 to {MULTIPLIER_MAX}, not {back_off.multiplier}"
        )
