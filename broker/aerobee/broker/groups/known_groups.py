"""Which groups this broker knows by name, and how many it takes.

Owns: who gets an entry of subscriptionGroup.json: each group that somebody joins, or that commits,
as long as there are fewer than the limit. Groups of before stay, however many they are.
"""

from __future__ import annotations

from aerobee.broker.store.tables.config_tables import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.errors import LimitReached


class KnownGroups:
    """Admits groups; on the loop."""

    def __init__(
        self, configs: SubscriptionGroupTable, offsets: ConsumerOffsetTable, *, groups_max: int
    ) -> None:
        self._configs = configs
        self._offsets = offsets
        self._groups_max = groups_max

    def admit(self, group: str) -> None:
        """Know this group from now on.

        Raises:
            LimitReached: it is a new one, and there are too many.
        """
        if group in self._configs:
            return
        count = max(len(self._configs), self._offsets.group_count)
        if count >= self._groups_max and not self._offsets.topics_of(group):
            raise LimitReached(
                f"group {group} is refused: this broker has reached its limit of groups, with "
                f"{count} of {self._groups_max} (groups.max of the broker); delete unused groups "
                "with `aerobee group delete`, or raise the limit"
            )
        self._configs.put(SubscriptionGroupConfig(name=group))
