"""What an operator can set about retention; Apache's option is named beside each key.

Apache's limits apply: a percentage outside its range is moved to the end of the range, so that
settings taken over from Apache mean the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aerobee.runtime.config import require

_HOURS = re.compile(r"([01]?[0-9]|2[0-3])([;,]([01]?[0-9]|2[0-3]))*")
_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """When log segments are removed, and when the disk is too full for more messages.

    Raises InvalidArgument for a value that cannot work.
    """

    enabled: bool = True
    """False: no segment is ever removed, and messages are taken however full the disk is. What a
    topic no longer keeps is not served either way.

    Costs: without it, the log grows until `disk_free_bytes_min` is reached.
    """
    file_reserved_hours: int = 72
    """How long a segment stays after its last write (fileReservedTime).

    Costs: disk space for the messages of these hours.
    """
    delete_when: str = "04"
    """Hours of the day, local time, in which expired segments are removed (deleteWhen). The whole
    hour counts.

    Unit: hours from 0 to 23, `;` between
    Costs: expired segments stay on the disk until then.
    """
    disk_used_percent_max: int = 75
    """Above this, expired segments are removed at any hour; 10 to 95 (diskMaxUsedSpaceRatio).

    Costs: lower removes earlier in the day; higher leaves less room for a burst.
    """
    disk_force_percent: int = 85
    """Above this, unexpired segments are also removed; 30 to 85 (diskSpaceCleanForciblyRatio).

    Costs: messages are lost before their time, the oldest first; never unread ones.
    """
    disk_refuse_percent: int = 90
    """Above this, no messages are taken until the disk is below the force percentage again; 35 to
    90 (diskSpaceWarningLevelRatio).

    Costs: space on the disk that is never used.
    """
    force_enabled: bool = True
    """Whether unexpired segments are removed above the force percentage (cleanFileForciblyEnable).

    Costs: without it, messages are refused sooner when the disk is full.
    """
    keep_unread_max_bytes: int = 0
    """Unread messages keep the log only while at most this many bytes follow them, on each broker,
    so that one slow group cannot fill the disk and stop all senders; 0: always. A topic's attribute
    of the same name takes its place.

    Unit: bytes
    Costs: a group that is further behind loses messages; `AerobeeUnreadMessagesRemoved` names it.
    """
    delete_files_max: int = 10
    """At most this many segments are removed in one run (deleteFileBatchMax); a command may remove
    20 times as many.

    Unit: segments
    Costs: more: the disk is busy for longer at a time.
    """
    delete_pause_ms: int = 100
    """The pause between two removals, so that the disk can do other work
    (deleteCommitLogFilesInterval).

    Costs: longer: it takes longer until a full disk has room again.
    """
    clean_interval_ms: int = 10_000
    """The time between two runs (cleanResourceInterval).

    Costs: the log's files are listed each time.
    """
    first_clean_ms: int = 60_000
    """The time from the start to the first run.

    Costs: a disk that is full at the start stays full for this long.
    """

    def __post_init__(self) -> None:
        require(
            self.file_reserved_hours >= 0,
            "retention.file_reserved_hours must be >= 0",
            self.file_reserved_hours,
        )
        require(
            _HOURS.fullmatch(self.delete_when) is not None,
            "retention.delete_when must be hours from 0 to 23, separated by ';'",
            self.delete_when,
        )
        for name in ("disk_used_percent_max", "disk_force_percent", "disk_refuse_percent"):
            percent = getattr(self, name)
            require(0 <= percent <= 100, f"retention.{name} must be 0 to 100", percent)
        for name in ("delete_files_max", "clean_interval_ms"):
            require(getattr(self, name) > 0, f"retention.{name} must be > 0", getattr(self, name))
        for name in ("delete_pause_ms", "first_clean_ms", "keep_unread_max_bytes"):
            require(getattr(self, name) >= 0, f"retention.{name} must be >= 0", getattr(self, name))

    @property
    def hours(self) -> frozenset[int]:
        """`delete_when` as hours of the day."""
        return frozenset(int(hour) for hour in re.split("[;,]", self.delete_when))

    @property
    def reserved_ms(self) -> int:
        return self.file_reserved_hours * _MS_PER_HOUR

    def moved_percentages(self) -> list[str]:
        """One sentence for each percentage that is used with a value other than the one set."""
        used = {
            "disk_used_percent_max": self.expire_above_percent,
            "disk_force_percent": self.force_above_percent,
            "disk_refuse_percent": self.refuse_above_percent,
        }
        return [
            f"store.retention.{name} is {getattr(self, name)}, which is out of its range: "
            f"{percent} is used"
            for name, percent in used.items()
            if getattr(self, name) != percent
        ]

    @property
    def expire_above_percent(self) -> int:
        return min(max(self.disk_used_percent_max, 10), 95)

    @property
    def force_above_percent(self) -> int:
        return min(max(self.disk_force_percent, 30), 85)

    @property
    def refuse_above_percent(self) -> int:
        return min(max(self.disk_refuse_percent, 35), 90)

    @property
    def resume_below_percent(self) -> int:
        """Once messages are refused, they are taken again at or below this percentage."""
        return min(self.force_above_percent, self.refuse_above_percent)
