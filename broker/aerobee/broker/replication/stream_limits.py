"""What the streams between a replica set's replicas keep to: times, window, chunks, rate."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.replication.config import ReplicationConfig

MIB = 1024 * 1024
SILENCE_S_MIN = 1.5
SILENT_HEARTBEATS = 3
CHUNK_BYTES_MAX = 4 * MIB
"""Larger ones would hold up the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Both sides' settings; `flush_is_sync` is the slave's."""

    heartbeat_interval_s: float = 0.5
    window_bytes: int = 16 * MIB
    """The slave takes so many unacknowledged bytes; a single larger record all the same."""
    chunk_bytes: int = 512 * 1024
    """A frame has no more log bytes than this."""
    catch_up_bytes_per_s: int = 200 * MIB
    """For a replica that is not in sync while messages are being sent; 0: no limit."""
    connect_s: float = 5.0
    """How long a slave waits until its master takes the hello; an attempt to connect takes gRPC up
    to 3 s, and looking up a name has no limit of its own."""
    flush_is_sync: bool = False
    """Stored means flushed."""

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
        """A peer that says nothing for so long is gone."""
        return max(SILENCE_S_MIN, SILENT_HEARTBEATS * self.heartbeat_interval_s)
