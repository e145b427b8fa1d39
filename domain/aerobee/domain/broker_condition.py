"""What keeps a running broker from its work, as reported by the broker itself."""

from __future__ import annotations

from enum import StrEnum


class BrokerCondition(StrEnum):
    """The values are those in its etcd record."""

    WELL = ""
    SLOW = "slow"
    """Its event loop runs late: another replica should be master."""
    DISK_HUNG = "disk hung"
    """Its disk does not answer: it can be neither elected nor in sync."""
