"""What a channel may cost its process, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.rpc.core.limits import ConnectionLimits


def client_connection_limits() -> ConnectionLimits:
    """A client chooses its peer, so its connection may hold more and allow the peer more; and on a
    connection that takes no new calls, running ones may take their time."""
    return ConnectionLimits(
        decompressed_bytes_max=1 << 30,
        stream_window_bytes=1 << 20,
        connection_window_bytes=16 << 20,
        control_burst=4_000,
        control_per_s=2_000.0,
        keepalive_s=10.0,
        keepalive_timeout_s=5.0,
        keepalive_when_idle=False,
        age_grace_s=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Bytes, seconds and calls. The defaults suit a process with a few channels."""

    connection: ConnectionLimits = field(default_factory=client_connection_limits)
    backoff_first_s: float = 0.1
    """After the first failed attempt to connect; longer after each further one."""
    backoff_max_s: float = 2.0
    attempt_s: float = 3.0
    """To resolve the name, and then for each address."""
    stagger_s: float = 0.25
    """The head start of an address over the next one."""
    waiting_max: int = 10_000
    """Calls waiting for a connection, or for room on one; further ones fail at once."""
    waiting_bytes_max: int = 64 << 20
    """The total size of their requests."""
    memory_bytes_max: int = 256 << 20
    """Data waiting to be sent or read; beyond this, the connection that holds the most is ended."""

    def __post_init__(self) -> None:
        """Raises ValueError for values that cannot work together."""
        if not 0 < self.backoff_first_s <= self.backoff_max_s:
            raise ValueError("0 < backoff_first_s <= backoff_max_s")
        if self.attempt_s <= 0 or self.stagger_s <= 0 or self.waiting_max < 1:
            raise ValueError("attempt_s, stagger_s and waiting_max are more than 0")
