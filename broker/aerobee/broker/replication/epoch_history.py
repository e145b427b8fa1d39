"""PURE: which master wrote which part of the log.

Owns: the history of epochs and the point up to which two logs are equal. An epoch belongs to one
run of one master, which only appends: so (epoch, offset) identifies the same bytes in every log
that has them, and two logs are equal up to the end of the newest epoch that starts at the same
offset in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class EpochStart(NamedTuple):
    """An epoch and the log offset of its first byte."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """Epochs of one log, oldest first; both numbers rise (a start may repeat: an empty epoch)."""

    entries: tuple[EpochStart, ...] = ()

    def __post_init__(self) -> None:
        for earlier, later in pairwise(self.entries):
            if earlier.epoch >= later.epoch or earlier.start > later.start:
                raise ValueError(f"epoch {later.epoch} does not follow epoch {earlier.epoch}")

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int]]) -> EpochHistory:
        """Raises ValueError unless epochs rise and starts do not fall."""
        return cls(tuple(EpochStart(epoch, start) for epoch, start in entries))

    @property
    def latest_epoch(self) -> int:
        """0 if there is none."""
        return self.entries[-1].epoch if self.entries else 0

    def up_to(self, log_end: int) -> EpochHistory:
        """The history without epochs that begin after `log_end`, whose bytes are missing."""
        if not self.entries or self.entries[-1].start <= log_end:
            return self
        return EpochHistory(tuple(entry for entry in self.entries if entry.start <= log_end))

    def begin(self, epoch: int, log_end: int) -> EpochHistory:
        """The history of a log that continues under `epoch`."""
        return EpochHistory((*self.up_to(log_end).entries, EpochStart(epoch, log_end)))

    def epoch_at(self, position: int) -> int:
        """The epoch of the byte at `position`; 0 if it is before all epochs."""
        epoch = 0
        for entry in self.entries:
            if entry.start > position:
                break
            epoch = entry.epoch
        return epoch

    def part_end(self, index: int, log_end: int) -> int:
        """Where the epoch at `index` ends in a log that ends at `log_end`."""
        if index + 1 < len(self.entries):
            return min(self.entries[index + 1].start, log_end)
        return log_end


def common_end(
    history: EpochHistory, log_end: int, other: EpochHistory, other_end: int
) -> int | None:
    """The offset up to which two logs are certainly equal; None if no epoch shows it.

    The rule is Apache RocketMQ's (controller mode): the newest epoch that both have with the same
    start, up to its end in the log where it ends first.
    """
    history, other = history.up_to(log_end), other.up_to(other_end)
    starts = {entry: index for index, entry in enumerate(other.entries)}
    for index in range(len(history.entries) - 1, -1, -1):
        match = starts.get(history.entries[index])
        if match is not None:
            return min(history.part_end(index, log_end), other.part_end(match, other_end))
    return None
