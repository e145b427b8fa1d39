"""How a node divides the memory that it may use: each kind of work has a part, and all parts
together are less than the limit, so that a peer meets a refusal where the kernel would end the
process.

The program itself and what has a fixed size come first. What is left is divided by the table of the
node's kind, up to a maximum for each part: more memory than that is left to the page cache, which
makes reading fast.

Pure: `usable_memory` says how much there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.rpc.core.connection_set import MemoryLimit
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import UsableMemory
from aerobee.runtime.metrics.families import Family, gauge

MIB: Final = 1 << 20
LOOKUP_BYTES_MAX: Final = 16 * MIB
"""What one search may find."""
COPIES: Final = 3
"""A request that arrived in parts is joined, then parsed: for a moment it is there three times."""


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a table."""

    name: str
    """Label of the metric."""
    share: float
    """Of what is left after the fixed parts."""
    bytes_max: int
    bytes_min: int = 1 * MIB
    """With less, the node does not start."""


@dataclass(frozen=True, slots=True)
class Division:
    """The table of one kind of node."""

    node: str
    """For sentences: `a broker`."""
    fixed: Mapping[str, int]
    """By name, bytes that the node takes whatever the limit is."""
    parts: Sequence[Part]


BROKER_MEMORY: Final = Division(
    "a broker",
    # What a broker without messages takes, and the entries that wait for its journals.
    {"program": 96 * MIB, "journals": 24 * MIB},
    (
        Part("server", 0.20, 512 * MIB),
        Part("remoting", 0.05, 64 * MIB),
        Part("requests", 0.25, COPIES * FRAME_BYTES_MAX, COPIES * 8 * MIB),
        Part("store", 0.22, 128 * MIB, 8 * MIB),
        Part("channels", 0.10, 256 * MIB),
        Part("lookups", 0.08, 256 * MIB, 8 * MIB),
        Part("replication", 0.05, 64 * MIB),
        Part("tables", 0.05, 256 * MIB),
    ),
)
NAMESERVER_MEMORY: Final = Division(
    "a nameserver",
    {"program": 96 * MIB},
    (
        Part("server", 0.37, 512 * MIB),
        Part("remoting", 0.03, 32 * MIB),
        Part("requests", 0.35, COPIES * FRAME_BYTES_MAX, COPIES * 8 * MIB),
        Part("channels", 0.15, 256 * MIB),
        Part("tables", 0.10, 256 * MIB),
    ),
)


class MemoryBudget:
    """The parts of one process, and how much of those that are counted is in use."""

    def __init__(self, division: Division, memory: UsableMemory) -> None:
        """
        Raises:
            InvalidArgument: that is too little memory for this kind of node.
        """
        self.memory = memory
        fixed = sum(division.fixed.values())
        left = max(0, memory.bytes - fixed)
        self.bytes_of = dict(division.fixed)
        for part in division.parts:
            self.bytes_of[part.name] = min(int(left * part.share), part.bytes_max)
        too_small = [part for part in division.parts if self.bytes_of[part.name] < part.bytes_min]
        if too_small:
            raise InvalidArgument(
                f"this process may use {memory.bytes / MIB:.0f} MiB of memory, by {memory.source}, "
                f"and {division.node} needs {needed_bytes(division) / MIB:.0f}: raise the limit of "
                "its container or cgroup (in Kubernetes resources.limits.memory, in systemd "
                "MemoryMax)"
            )
        assert sum(self.bytes_of.values()) <= memory.bytes, "the parts add up to less"
        self.channels = MemoryLimit(self.bytes_of["channels"])
        """Shared by the channels over which the node passes on calls of clients."""
        self._used: dict[str, Callable[[], int]] = {"channels": lambda: self.channels.used}

    def counts(self, part: str, used: Callable[[], int]) -> None:
        """Show what `used` returns as the bytes of this part in use."""
        self._used[part] = used

    @property
    def server_bytes(self) -> int:
        """For everything that waits to be sent or read, and requests that are being answered."""
        return self.bytes_of["server"]

    @property
    def remoting_bytes(self) -> int:
        """The same for remoting."""
        return self.bytes_of["remoting"]

    def least(self, part: str, *sizes: int) -> list[int]:
        """These sizes, made smaller in proportion if all together exceed the part."""
        room = self.bytes_of[part]
        return [min(size, size * room // sum(sizes)) for size in sizes]

    @property
    def lookups_at_a_time(self) -> int:
        """Searches that hold what they find until all of it is found."""
        return max(1, self.bytes_of["lookups"] // LOOKUP_BYTES_MAX)

    @property
    def request_bytes_max(self) -> int:
        """For one request, uncompressed."""
        return min(FRAME_BYTES_MAX, self.bytes_of["requests"] // COPIES)

    def __str__(self) -> str:
        """For the log, in MiB."""
        return ", ".join(f"{name} {size // MIB}" for name, size in self.bytes_of.items())

    def families(self) -> list[Family]:
        """What each part may use and, of those that are counted, uses."""
        limit = gauge(
            "aerobee_memory_budget_bytes",
            "Memory that a part of the node may use; all parts add up to less than the limit.",
            "part",
        )
        for part, size in self.bytes_of.items():
            limit.add(size, part)
        used = gauge(
            "aerobee_memory_used_bytes",
            "Memory that a part of the node uses, of those whose use is counted.",
            "part",
        )
        for part, count in self._used.items():
            used.add(count(), part)
        usable = gauge(
            "aerobee_memory_limit_bytes",
            "Memory that the process may use: the limit of its cgroup, or the machine's memory.",
        )
        usable.add(self.memory.bytes)
        return [limit, used, usable]


def needed_bytes(division: Division) -> int:
    """The least memory with which such a node starts."""
    fixed = sum(division.fixed.values())
    return fixed + max(int(part.bytes_min / part.share) + MIB for part in division.parts)
