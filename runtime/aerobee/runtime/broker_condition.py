"""What keeps a broker that runs from its work, as it says itself."""

from __future__ import annotations

from enum import StrEnum


class BrokerCondition(StrEnum):
    """The values are those of its record in etcd."""

    WELL = ""
    SLOW = "slow"
    """Its event loop runs late: a group is better led by another replica."""
    DISK_HUNG = "disk hung"
    """Its disk does not answer: it is not elected, and not in sync."""
