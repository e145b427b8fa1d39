"""Settings of a nameserver that are allowed, and together do what their reader may not expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.runtime.addresses import is_loopback
from aerobee.runtime.config_check import Risk
from aerobee.runtime.config_risks import common_risks

if TYPE_CHECKING:
    from aerobee.nameserver.config import NameserverConfig


def nameserver_risks(config: NameserverConfig) -> list[Risk]:
    """What to say of a nameserver's settings."""
    found = list(common_risks(config))
    if config.topics.auto_create and not is_loopback(config.listen):
        found.append(
            Risk(
                ("topics.auto_create", "listen"),
                "topics.auto_create is true and others than this machine can ask: a misspelt name "
                "becomes a topic with the default number of queues",
            )
        )
    if config.unclean_election:
        found.append(
            Risk(
                ("unclean_election",),
                "unclean_election is true: when no replica in sync is alive, one that lacks "
                "acknowledged messages becomes master, and they are lost",
            )
        )
    if config.etcd.call_timeout_ms >= config.broker_lease.default_ms:
        found.append(
            Risk(
                ("etcd.call_timeout_ms", "broker_lease.default_ms"),
                f"one call to an etcd member that hangs lasts {config.etcd.call_timeout_ms} ms, "
                f"and brokers' registrations {config.broker_lease.default_ms} ms: they end before "
                "another member is asked",
            )
        )
    return found
