"""What an operator can set about a broker's place in its group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aerobee.broker.replication.master_term import TermPolicy
from aerobee.runtime.config import require

KIB = 1024
MIB = 1024 * KIB


class ReplicationMode(StrEnum):
    """What an acknowledgement promises beyond this machine."""

    ASYNC = "async_master"  # acknowledged by the master alone; its death may take the newest
    SYNC = "sync_master"  # acknowledged once every replica of the in-sync set has it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """All replicas of a group should have the same, for each may become master. Raises
    InvalidArgument for a value that cannot work."""

    mode: ReplicationMode = ReplicationMode.ASYNC
    min_insync_replicas: int = 1
    """A master takes no messages while fewer replicas, itself included, are in sync."""
    in_sync_lag_max_ms: int = 2_000
    """A replica that has not had everything for so long leaves the in-sync set."""
    heartbeat_interval_ms: int = 500
    """Between frames of a replication stream on which nothing else travels."""
    window_bytes: int = 16 * MIB
    """So much of the log is on its way to a replica that has not acknowledged it."""
    chunk_bytes: int = 512 * KIB
    """Most bytes of the log in one frame."""
    catch_up_bytes_per_s: int = 200 * MIB
    """Bound for a replica that is not in sync, while messages come in; 0: none."""
    slave_read_bytes: int = 0
    """A reader further behind than this is sent to a slave; 0: 40 % of the machine's memory."""

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
        for name in ("catch_up_bytes_per_s", "slave_read_bytes"):
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

    @property
    def term_policy(self) -> TermPolicy:
        return TermPolicy(
            min_insync_replicas=self.min_insync_replicas,
            in_sync_lag_s=self.in_sync_lag_max_ms / 1_000,
        )
