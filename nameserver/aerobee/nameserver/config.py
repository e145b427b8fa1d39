"""What an operator can set about a nameserver, with the defaults and the limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aerobee.runtime.config import require

_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """How etcd is reached."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    """host:port of each member; one is used at a time, the next one when it fails."""
    call_timeout_ms: int = 2_000
    """Longest that one call may take."""
    calls_in_flight_max: int = 8
    """Calls at once, each on a thread of its own; more wait their turn."""
    read_attempts_max: int = 3
    """Reads are tried so often before etcd counts as away; writes are never repeated blindly."""
    reconnect_max_ms: int = 1_000
    """Longest pause between attempts to reach an etcd that is away."""

    def __post_init__(self) -> None:
        require(len(self.endpoints) > 0, "etcd.endpoints must name at least one", self.endpoints)
        for endpoint in self.endpoints:
            _require_address("etcd.endpoints", endpoint)
        for name in (
            "call_timeout_ms",
            "calls_in_flight_max",
            "read_attempts_max",
            "reconnect_max_ms",
        ):
            value = getattr(self, name)
            require(value > 0, f"etcd.{name} must be > 0", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """How topics come into being."""

    auto_create: bool = True
    """Create a topic when a producer first asks for its route."""
    default_queues_per_group: int = 4
    """Queues on each broker group when nobody says how many."""
    queues_max: int = 4_096
    """Largest number of queues of one topic, over all broker groups."""
    spread_timeout_ms: int = 1_000
    """Longest that an answer to a topic change waits for the brokers to have heard of it."""

    def __post_init__(self) -> None:
        require(
            self.default_queues_per_group > 0,
            "topics.default_queues_per_group must be > 0",
            self.default_queues_per_group,
        )
        require(self.queues_max > 0, "topics.queues_max must be > 0", self.queues_max)
        require(
            self.spread_timeout_ms >= 0,
            "topics.spread_timeout_ms must be >= 0",
            self.spread_timeout_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLeaseConfig:
    """How long a broker's registration outlives its last heartbeat."""

    default_ms: int = 5_000
    """For brokers that do not say."""
    min_ms: int = 1_000
    """Shorter wishes are raised to this; etcd counts in seconds and has a minimum of its own."""
    max_ms: int = 120_000

    def __post_init__(self) -> None:
        require(self.min_ms >= 1_000, "broker_lease.min_ms must be >= 1000", self.min_ms)
        require(
            self.min_ms <= self.default_ms <= self.max_ms,
            "broker_lease.default_ms must lie between min_ms and max_ms",
            self.default_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig:
    """One nameserver process. Several with the same cluster and etcd are interchangeable."""

    cluster: str = "aerobee"
    """Names the cluster; a broker or client of another one is refused."""
    listen: str = "127.0.0.1:8081"
    """host:port to serve on; port 0 lets the system choose."""
    stop_grace_ms: int = 2_000
    """How long running calls may go on after a stop was asked for."""
    etcd: EtcdConfig = field(default_factory=EtcdConfig)
    topics: TopicPolicy = field(default_factory=TopicPolicy)
    broker_lease: BrokerLeaseConfig = field(default_factory=BrokerLeaseConfig)
    unclean_election: bool = False
    """Let a replica that lacks acknowledged messages become master when nobody else is alive."""

    def __post_init__(self) -> None:
        require(
            _CLUSTER_NAME.fullmatch(self.cluster) is not None,
            "cluster must be 1 to 64 letters, digits, '_' and '-'",
            self.cluster,
        )
        _require_address("listen", self.listen)
        require(self.stop_grace_ms >= 0, "stop_grace_ms must be >= 0", self.stop_grace_ms)


def _require_address(name: str, address: str) -> None:
    require(_ADDRESS.fullmatch(address) is not None, f"{name} must be host:port", address)
