"""What an operator can set about a broker's place in its replica set, and the resulting limits of
streams between replicas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aerobee.broker.replication.master_term import TermPolicy
from aerobee.runtime.config import require

KIB = 1024
MIB = 1024 * KIB

SILENCE_S_MIN = 1.5
SILENT_HEARTBEATS = 3
CHUNK_BYTES_MAX = 4 * MIB
"""Larger ones would hold up the loop."""
READ_MEMORY_SHARE = 0.4
"""As in Apache RocketMQ: accessMessageInMemoryMaxRatio."""


class ReplicationMode(StrEnum):
    """What an acknowledgement promises beyond this machine."""

    ASYNC = "async_master"  # acknowledged by the master alone; its death may take the newest
    SYNC = "sync_master"  # acknowledged once every replica of the in-sync set has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How the replicas of a set work together. All replicas should have the same values, since each
    may become master; see [replicas and fail-over](failover.md).

    Raises InvalidArgument for a value that cannot work.
    """

    mode: ReplicationMode = ReplicationMode.ASYNC
    """What an acknowledgement promises beyond this machine. `sync_master`: every replica of the
    in-sync set has the message, and none is lost with the master; `async_master`: the master has
    it, and the messages that it acknowledged last may be lost with it.

    Costs: `sync_master`: a round trip to the slaves for each batch, and about half of the rate on
    two cores ([measured](internals/performance-details.md#replication)).
    """
    min_insync_replicas: int = 1
    """With fewer replicas in sync, the master included, messages are refused with
    NOT_ENOUGH_REPLICAS and nothing is stored. 2 of 3: each message that `sync_master` acknowledges
    is on two machines.

    Unit: replicas
    Costs: as many as there are replicas: no messages while one of them is away.
    """
    in_sync_lag_max_ms: int = 2_000
    """A replica that has lacked messages for this long leaves the in-sync set.

    Costs: longer: a silent or slow slave holds up synchronous sends for this time; shorter: a slave
    leaves at every hiccup, and cannot be elected meanwhile.
    """
    heartbeat_interval_ms: int = 500
    """The time between frames on an idle replication stream. Silence for three intervals, at least
    1.5 s, ends the stream.

    Costs: a small frame to each slave; shorter: a dead peer is found sooner, but a slow one is
    taken for dead sooner, too.
    """
    slow_handover_interval_ms: int = 300_000
    """A master whose event loop runs late hands over to an in-sync replica that is not late, but
    not before its term has lasted this long; 0: never.

    Costs: each hand-over pauses writes for about 20 ms.
    """
    window_bytes: int = 16 * MIB
    """How much of the log may be in flight to a replica without an acknowledgement. Use more for
    fast links with a long round trip.

    Costs: that much memory for each replica.
    """
    chunk_bytes: int = 512 * KIB
    """How much of the log one frame may carry.

    Costs: memory for each replica; smaller: more frames.
    """
    catch_up_bytes_per_s: int = 200 * MIB
    """The rate limit for a replica that catches up while messages arrive, so that these do not
    wait; 0: no limit.

    Costs: lower: it takes longer until the replica can be elected.
    """
    slave_read_bytes: int = 0
    """A reader further behind than this is sent to a slave; 0: 40 % of the memory that the broker
    may use, which is the limit of its cgroup (of its container), or else the machine's. The
    broker's log and `aerobee config check` say how much that is.

    Costs: smaller: slaves are read more; larger: the master's disk is read more.
    """

    def __post_init__(self) -> None:
        for name in (
            "min_insync_replicas",
            "in_sync_lag_max_ms",
            "heartbeat_interval_ms",
            "window_bytes",
            "chunk_bytes",
        ):
            value = getattr(self, name)
            require(value > 0, f"replication.{name} must be > 0", value)
        for name in ("catch_up_bytes_per_s", "slave_read_bytes", "slow_handover_interval_ms"):
            value = getattr(self, name)
            require(value >= 0, f"replication.{name} must be >= 0", value)
        require(
            self.chunk_bytes <= self.window_bytes,
            "replication.chunk_bytes must not exceed window_bytes",
            self.chunk_bytes,
        )
        require(
            self.heartbeat_interval_ms < self.in_sync_lag_max_ms,
            "replication.heartbeat_interval_ms must be below in_sync_lag_max_ms",
            self.heartbeat_interval_ms,
        )

    def slave_read_bytes_of(self, memory_bytes: int) -> int:
        """The budget of a broker that may use this much memory."""
        return self.slave_read_bytes or int(memory_bytes * READ_MEMORY_SHARE)

    @property
    def term_policy(self) -> TermPolicy:
        return TermPolicy(
            min_insync_replicas=self.min_insync_replicas,
            in_sync_lag_s=self.in_sync_lag_max_ms / 1_000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Both sides' settings; `flush_is_sync` is the slave's."""

    heartbeat_interval_s: float = 0.5
    window_bytes: int = 16 * MIB
    """A slave takes at most this many unacknowledged bytes, or a single larger record."""
    chunk_bytes: int = 512 * 1024
    """A frame has at most this many log bytes."""
    catch_up_bytes_per_s: int = 200 * MIB
    """For a replica that is not in sync, while messages are being sent; 0: no limit."""
    connect_s: float = 5.0
    """How long a slave waits until its master takes the hello; a connection attempt of gRPC takes
    up to 3 s, and a name lookup has no limit of its own."""
    flush_is_sync: bool = False
    """Stored means flushed to disk."""

    @classmethod
    def of(cls, config: ReplicationConfig, *, flush_is_sync: bool) -> StreamLimits:
        return cls(
            heartbeat_interval_s=config.heartbeat_interval_ms / 1_000,
            window_bytes=config.window_bytes,
            chunk_bytes=min(config.chunk_bytes, CHUNK_BYTES_MAX),
            catch_up_bytes_per_s=config.catch_up_bytes_per_s,
            flush_is_sync=flush_is_sync,
        )

    @property
    def silence_s(self) -> float:
        """A peer that is silent for this long counts as gone."""
        return max(SILENCE_S_MIN, SILENT_HEARTBEATS * self.heartbeat_interval_s)
