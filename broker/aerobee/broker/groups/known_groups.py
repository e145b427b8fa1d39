"""Which groups this broker knows by name, and how many it admits.

Owns: who gets an entry in subscriptionGroup.json: each group that is joined, or that commits, while
there are fewer than the limit. Existing groups stay, even above the limit.
"""

from __future__ import annotations

from aerobee.access.meter import about_to_create
from aerobee.access.quota import GROUPS_CREATED
from aerobee.runtime.errors import LimitReached
from aerobee.store.engine.tables.config_tables import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable


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
            LimitReached: the group is new, and there are too many.
            QuotaExceeded: the group is new, and the caller has created too many.
        """
        if group in self._configs:
            return
        count = max(len(self._configs), self._offsets.group_count)
        is_new = not self._offsets.topics_of(group)
        if count >= self._groups_max and is_new:
            raise LimitReached(
                f"group {group} is refused: this broker has reached its limit of groups, with "
                f"{count} of {self._groups_max} (groups.max of the broker); delete unused groups "
                "with `aerobee group delete`, or raise the limit"
            )
        if is_new:
            about_to_create(GROUPS_CREATED)
        self._configs.put(SubscriptionGroupConfig(name=group))
