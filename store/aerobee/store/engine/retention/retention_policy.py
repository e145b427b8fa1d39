"""Whether the oldest log segment may be removed now: pure decisions over ages and percentages.

Segments are removed oldest first, one at a time, and the first that stays ends the run. The active
segment is never considered. Whether its content is still needed is decided later, see
`aerobee.broker.retention.holds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aerobee.store.engine.retention.retention_config import RetentionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """Why a run takes place: by time, or on an operator's command."""

    commanded: bool = False
    """Expired segments are removed at any hour."""
    force: bool = False
    """Unexpired ones too, while the disk is fuller than `disk_used_percent_max`."""
    unread: bool = False
    """Also what groups have not read."""


PERIODIC = CleanRequest()


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A measured disk, see `Disk`; negative: not measured yet."""

    free_bytes: int = -1
    total_bytes: int = -1

    @property
    def used_percent(self) -> float | None:
        """How much of what this user may fill is used, as in `df`; None if unknown."""
        if self.free_bytes < 0 or self.total_bytes <= 0:
            return None
        return 100 * (self.total_bytes - self.free_bytes) / self.total_bytes


@dataclass(frozen=True, slots=True)
class Occasion:
    """The moment of a decision."""

    hour: int
    space: DiskSpace
    request: CleanRequest


class Cause(StrEnum):
    """Why a segment goes."""

    EXPIRED = "expired"
    DISK = "the disk is too full"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cause` None: the segment stays; `kept_because` says why if it is expired."""

    cause: Cause | None
    kept_because: str = ""


class RetentionPolicy:
    """The rules over one configuration."""

    __slots__ = ("_config", "_hours")

    def __init__(self, config: RetentionConfig) -> None:
        self._config = config
        self._hours = config.hours

    def judge(self, occasion: Occasion, age_ms: int) -> Verdict:
        """May a sealed segment of this age be removed?"""
        if not self._config.enabled and not occasion.request.commanded:
            return Verdict(None)
        if age_ms > self._config.reserved_ms:
            if self._expired_go(occasion):
                return Verdict(Cause.EXPIRED)
            return Verdict(
                None, f"expired segments are removed at the hours {self._config.delete_when}"
            )
        return Verdict(Cause.DISK if self._unexpired_go(occasion) else None)

    def _expired_go(self, occasion: Occasion) -> bool:
        return (
            occasion.request.commanded
            or occasion.hour in self._hours
            or self._is_above(occasion, self._config.expire_above_percent)
            or self._is_above(occasion, self._config.force_above_percent)
        )

    def _unexpired_go(self, occasion: Occasion) -> bool:
        if occasion.request.force and self._is_above(occasion, self._config.expire_above_percent):
            return True
        return self._config.force_enabled and self._is_above(
            occasion, self._config.force_above_percent
        )

    def _is_above(self, occasion: Occasion, percent: int) -> bool:
        used_percent = occasion.space.used_percent
        return used_percent is not None and used_percent > percent


class FullDisk:
    """Whether the disk is too full for more messages: from one percentage on, until it is down to a
    lower one, so that a broker at the limit does not flip every second."""

    __slots__ = ("_config", "is_full", "space")

    def __init__(self, config: RetentionConfig) -> None:
        self._config = config
        self.is_full = False
        self.space = DiskSpace()

    def measured(self, space: DiskSpace) -> None:
        self.space = space
        used_percent = space.used_percent
        if not self._config.enabled or used_percent is None:
            self.is_full = False
        elif used_percent > self._config.refuse_above_percent:
            self.is_full = True
        elif used_percent <= self._config.resume_below_percent:
            self.is_full = False

    def describe(self, held_by: str) -> str:
        """What senders are told while the disk is full; `held_by`: why nothing can be removed."""
        return (
            f"the disk is {self.space.used_percent or 0:.1f} % full: messages are refused above "
            f"{self._config.refuse_above_percent} % and taken again below "
            f"{self._config.resume_below_percent} %; {held_by or 'free space or add a broker'}"
        )
