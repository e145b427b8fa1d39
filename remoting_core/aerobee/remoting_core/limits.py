"""What one peer may cost, and the name of each limit that it can meet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from aerobee.remoting_core.frames import FrameLimits


class Limit(StrEnum):
    """Why a connection was ended."""

    FRAME = "frame"
    """It sent what is no frame, or one that is too large."""
    CONNECTIONS = "connections"
    SLOW_READER = "slow_reader"
    SLOW_SENDER = "slow_sender"
    """It began a frame and did not finish it in time."""
    MEMORY = "memory"
    """All connections together hold too much, and this one the most."""
    BUG = "bug"
    """Not a limit: this side failed at what the peer had sent."""


class LimitObserver(Protocol):
    """Counts and logs what was ended."""

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        """`peer` is host:port. Must not raise."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """Bytes, seconds and commands that one connection may use."""

    frames: FrameLimits = field(default_factory=FrameLimits)
    commands_per_turn: int = 32
    """Begun in one turn of the event loop, before other connections get theirs."""
    running_max: int = 256
    """Requests of one connection that are worked on at once; further ones wait unread."""
    write_high_bytes: int = 1 << 20
    """With more than this unsent, nothing further is read from the peer."""
    write_bytes_max: int = 64 << 20
    """With more than this unsent, the connection ends."""
    stall_s: float = 30.0
    """How long a peer may read nothing of what waits, or leave a frame incomplete."""
    idle_s: float = 120.0
    """How long a peer may say nothing; clients do at least every 30 s. 0: any time."""
