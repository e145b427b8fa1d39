"""SQL conditions for the system's own groups and topics, whose progress is not an application's."""

from __future__ import annotations

from typing import Final

from aerobee.domain.names import (
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


IS_SYSTEM_GROUP: Final = (
    f"(startswith(group, '{SYSTEM_GROUP_PREFIX}') or group in ({_listed(sorted(SYSTEM_GROUPS))}))"
)
"""Apache's predefined groups, and those of its own services."""
IS_SYSTEM_TOPIC: Final = (
    f"(startswith(topic, '{SYSTEM_PREFIX}') or topic in ({_listed(sorted(SYSTEM_TOPICS))}))"
)
"""Topics that belong to no application: only the broker consumes them."""
IS_LIGHT_TOPIC: Final = f"startswith(topic, '{LIGHT_QUEUE_PREFIX}')"
"""Apache's light queues, which no table of topics lists."""
RETRY_TOPIC: Final = f"concat('{RETRY_PREFIX}', group)"
"""Where a group's messages wait for redelivery."""

JOURNAL_TOPIC: Final = "AEROBEE_OFFSET_JOURNAL"
"""Where a broker writes each change of a committed offset."""
BUSY: Final = "busy: "
"""The prefix of `error` for a broker that answered, but had no capacity for the reading in time."""
