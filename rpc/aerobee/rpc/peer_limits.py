"""Peers that exceed gRPC's limits or break its protocol: counted and logged.

Owns: the counts. A peer cannot fill the log: the lines of one event are limited.
"""

from __future__ import annotations

import logging

from aerobee.rpc.core.limits import Limit
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import Family, counter

log = logging.getLogger(__name__)


class PeerLimits:
    """The LimitObserver of a process's servers. On the loop."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Limit, 0)

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        self.counts[limit] += 1
        log_event(
            log,
            "a peer met a limit of gRPC",
            level=logging.WARNING,
            limit=limit,
            peer=peer,
            reason=reason,
        )

    def family(self) -> Family:
        """All limits, including those never exceeded."""
        family = counter(
            "aerobee_grpc_limits_met_total",
            "Calls and connections that gRPC refused or ended, by the limit that the peer met.",
            "limit",
        )
        for limit, count in self.counts.items():
            family.add(count, limit)
        return family
