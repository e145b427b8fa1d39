"""Options of both consumers: timeouts, intervals, limits. Validated on creation."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aerobee.client_core.defaults import check_whole_number
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.retry import Backoff

KIB = 1024


class StartFrom(StrEnum):
    """Where a group starts in a queue on which it never committed an offset."""

    FIRST = "first"
    """At the oldest message that is still stored."""
    LAST = "last"
    """After the newest message: everything sent once the start has returned."""
    TIMESTAMP = "timestamp"
    """At the first message that was stored at or after a given time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings that are rarely changed. Times in ms."""

    session_timeout_ms: int = 10_000
    """A member that is silent for this long loses its queues; brokers may clamp it."""
    heartbeat_interval_ms: int = 0
    """0: a quarter of the session timeout."""
    commit_interval_ms: int = 5_000
    rebalance_interval_ms: int = 20_000
    """A rebalance is computed at every change of members and routes, and this often anyway."""
    request_timeout_ms: int = 5_000
    failover_timeout_ms: int = 30_000
    """How long the start, and `commit`, `committed` and `assign` of a PullConsumer, wait for a
    broker group without a master."""
    await_cluster_ms: int = 10_000
    """How long the start retries while no nameserver answers; 0: it fails at once."""
    release_timeout_ms: int = 5_000
    """How long running listeners may continue when their queue moves to another member, or the
    consumer closes; then they are cancelled and their messages handled again elsewhere."""
    close_timeout_ms: int = 10_000
    """The maximum duration of closing. Listeners get at most three quarters of it: the rest is for
    commits and leaving."""
    flow: FlowLimits = field(default_factory=FlowLimits)
    """Limits per queue."""
    prefetch_bytes_max: int = 8 * 1024 * KIB
    """PullConsumer: what is fetched of each queue ahead of `poll`; one frame may exceed it."""
    fetch_bytes_max: int = 512 * KIB
    """Of one frame."""
    fetch_messages_max: int = 512
    """In one frame of a PushConsumer. Frames may exceed the flow limits by one."""
    await_topics: bool = False
    """True: subscribed topics may be created later, and the cluster may be started later, and the
    start waits for neither; False: the start fails if a topic is missing or no nameserver answers.
    """
    backoff: Backoff = field(default_factory=lambda: Backoff(base_ms=100, max_ms=2_000))
    """Between tries to reach a broker."""

    def __post_init__(self) -> None:
        times = {
            "session_timeout_ms": self.session_timeout_ms,
            "commit_interval_ms": self.commit_interval_ms,
            "rebalance_interval_ms": self.rebalance_interval_ms,
            "request_timeout_ms": self.request_timeout_ms,
            "failover_timeout_ms": self.failover_timeout_ms,
            "release_timeout_ms": self.release_timeout_ms,
            "close_timeout_ms": self.close_timeout_ms,
            "prefetch_bytes_max": self.prefetch_bytes_max,
            "fetch_bytes_max": self.fetch_bytes_max,
            "fetch_messages_max": self.fetch_messages_max,
        }
        for name, value in times.items():
            check_whole_number(name, value, minimum=1)
        check_whole_number("await_cluster_ms", self.await_cluster_ms, minimum=0)
        check_whole_number("heartbeat_interval_ms", self.heartbeat_interval_ms, minimum=0)
        if self.session_timeout_ms < 500:
            raise InvalidArgument(
                f"session_timeout_ms must be at least 500, not {self.session_timeout_ms}: a busy "
                "machine would lose its queues all the time"
            )
        if not 0 <= self.heartbeat_interval_ms < self.session_timeout_ms:
            raise InvalidArgument(
                "heartbeat_interval_ms must be below session_timeout_ms, not "
                f"{self.heartbeat_interval_ms}"
            )
