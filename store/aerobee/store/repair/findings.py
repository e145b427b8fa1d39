"""What can be wrong with a store folder: one kind for each, with its meaning for an operator.

Codes are stable: scripts and the documentation name them. A finding says what was seen and where;
its kind says what that means and what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum


class Severity(StrEnum):
    """How bad it is."""

    NOTE = "note"  # as it should be after what happened; nothing to do
    WARNING = "warning"  # served correctly, but not as the last writer would have left it
    DAMAGE = "damage"  # data is lost, wrong or not readable as it is


@dataclass(frozen=True, slots=True)
class KindText:
    """What a kind of finding means, and what helps."""

    severity: Severity
    meaning: str
    advice: str


_N, _W, _D = Severity.NOTE, Severity.WARNING, Severity.DAMAGE
_REPAIR = "`aerobee store repair` shows what it would do"
_NOTHING = "nothing needs to be done"


class Kind(Enum):
    """Every kind of finding; the name is the code."""

    LOG_STRAY_FILE = KindText(
        _D, "a file in commitlog/ is not a segment: brokers refuse to start with it", _REPAIR
    )
    LOG_STRAY_FOLDER = KindText(
        _N, "a folder in commitlog/: Apache's 4.9 refuses to start with it", "move it away"
    )
    LOG_FILE_SIZE = KindText(
        _D, "a segment does not have the length of all segments: brokers refuse to start", _REPAIR
    )
    LOG_FILE_EMPTY = KindText(
        _W, "the last segment has no bytes: it was created and never filled", _REPAIR
    )
    LOG_GAP = KindText(
        _D,
        "a segment between others is missing, with all its messages",
        "put the file back if there is a copy of it; else " + _REPAIR,
    )
    LOG_BEGIN_MISSING = KindText(
        _W,
        "the oldest segments are gone: by retention just before the last stop, or by accident",
        "if it was an accident, put them back from a copy before a broker starts",
    )
    LOG_SEGMENT_MISPLACED = KindText(
        _D, "a segment has the bytes of another place in the log: files were renamed", _REPAIR
    )
    LOG_RECORD_CRC = KindText(
        _D, "a message's body is not the one that was written", _REPAIR + " (quarantine)"
    )
    LOG_RECORD_PROPERTY_CRC = KindText(
        _D, "the checksum of a whole record does not match: a field changed", _REPAIR
    )
    LOG_RECORD_LENGTHS = KindText(
        _D, "lengths inside a record contradict each other", _REPAIR + " (quarantine)"
    )
    LOG_RECORD_MAGIC = KindText(_D, "no record begins where one should", _REPAIR + " (quarantine)")
    LOG_RECORD_TOPIC = KindText(
        _D, "a record's topic is not a valid topic name", _REPAIR + " (quarantine)"
    )
    LOG_RECORD_HEADER = KindText(
        _D,
        "a record's queue or queue offset is not the one in its queue's entry",
        _REPAIR,
    )
    LOG_RECORD_PROPERTIES = KindText(
        _W,
        "a record's properties end in zeros: it was torn there, and no checksum covers them",
        "the message is served with the properties that are left",
    )
    LOG_PHYSICAL_OFFSET = KindText(
        _D,
        "a record names another place in the log: message ids made from it are wrong",
        _REPAIR,
    )
    LOG_HOLE = KindText(_D, "zeros inside the log, where records were", _REPAIR + " (quarantine)")
    LOG_BLANK_WRONG = KindText(
        _D, "the blank record at a segment's end does not reach the end", _REPAIR
    )
    LOG_TORN_TAIL = KindText(
        _W,
        "bytes after the last whole record: an append that did not finish",
        "the next start of the broker cuts it off; " + _REPAIR + " too",
    )
    LOG_SHORT = KindText(
        _D,
        "the log ends before a position that was once safely on the disk",
        "restore the segment from a copy; else " + _REPAIR,
    )
    LOG_TIME_BACKWARD = KindText(
        _N, "store times go back: the clock was set back; searches by time are inexact", _NOTHING
    )
    LOG_OFFSET_TWICE = KindText(
        _W,
        "a record has the queue offset of another record; readers see the other one",
        _NOTHING,
    )
    LOG_OFFSETS_MISSING = KindText(
        _W, "the log has no record for some queue offsets: these messages are lost", _NOTHING
    )
    QUEUE_STRAY_FILE = KindText(
        _W,
        "a file below consumequeue/ is not a queue file: Apache's broker refuses to start with it",
        _REPAIR,
    )
    QUEUE_FILE_SIZE = KindText(
        _D, "a queue file does not have the length of all queue files", _REPAIR + " (rebuild)"
    )
    QUEUE_FILE_EMPTY = KindText(
        _W, "a queue file has no entries: Apache's broker counts it as one entry", _REPAIR
    )
    QUEUE_GAP = KindText(_D, "a queue file between others is missing", _REPAIR + " (rebuild)")
    QUEUE_ENTRY_WRONG = KindText(
        _D, "queue entries do not point to their records", _REPAIR + " (rebuild)"
    )
    QUEUE_MISSING_ENTRIES = KindText(
        _D,
        "a queue does not list some of its records in the log: consumers do not get them",
        _REPAIR + " (rebuild)",
    )
    QUEUE_BEHIND_LOG = KindText(
        _N, "the last entries of a queue are not in its files yet", "the next start adds them"
    )
    QUEUE_AHEAD = KindText(
        _W, "a queue lists records after the end of the log", "the next start cuts them off"
    )
    QUEUE_ENDS_UNREADABLE = KindText(
        _N, "consumequeue.ends is damaged or older than the checkpoint", _NOTHING
    )
    QUEUE_SHORT = KindText(
        _D,
        "a queue had more entries at the last checkpoint than its files have now",
        "the next start rebuilds it; " + _REPAIR,
    )
    INDEX_FILE_SIZE = KindText(
        _D, "an index file does not have the length of all index files", _REPAIR + " (rebuild)"
    )
    INDEX_STRAY_FILE = KindText(_W, "a file in index/ is not an index file", _REPAIR)
    INDEX_HEADER_WRONG = KindText(
        _D, "the header of an index file contradicts its content", _REPAIR + " (rebuild)"
    )
    INDEX_SLOT_WRONG = KindText(
        _D,
        "a slot does not point to the last key of its chain: keys are not found",
        _REPAIR + " (rebuild)",
    )
    INDEX_CHAIN_WRONG = KindText(
        _D,
        "an entry does not point to the previous key of its chain: keys are not found",
        _REPAIR + " (rebuild)",
    )
    INDEX_ENTRY_WRONG = KindText(
        _D, "an index entry is for a key that its record does not have", _REPAIR + " (rebuild)"
    )
    INDEX_KEY_MISSING = KindText(
        _D,
        "some keys of records are not in the index: queries do not find them",
        _REPAIR + " (rebuild)",
    )
    INDEX_BEHIND_LOG = KindText(
        _N, "the last keys of the log are not in the index files yet", "the next start adds them"
    )
    INDEX_MISSING = KindText(
        _W, "records have keys, but there is no index", _REPAIR + " (rebuild); Apache's does not"
    )
    INDEX_NOT_CHECKED = KindText(
        _N,
        "the index cannot be read, because its sizes are not known",
        "give --config maxHashSlotNum=... and maxIndexNum=...",
    )
    CHECKPOINT_MISSING = KindText(
        _N, "there is no checkpoint: a start after a crash reads the whole log", _NOTHING
    )
    CHECKPOINT_UNREADABLE = KindText(
        _W, "the checkpoint cannot be used: a start after a crash reads the whole log", _REPAIR
    )
    CHECKPOINT_AHEAD = KindText(
        _W,
        "the checkpoint is newer than the log: a start after a crash may check too little",
        _REPAIR,
    )
    ABORT_PRESENT = KindText(
        _N, "the last broker here was not stopped cleanly", "the next start recovers by itself"
    )
    CONFIG_FROM_BACKUP = KindText(
        _W,
        "a table cannot be read, but its backup can: brokers use the backup, which is older",
        _REPAIR,
    )
    CONFIG_UNREADABLE = KindText(
        _D,
        "neither a table nor its backup can be read: brokers refuse to start",
        "restore the file from a copy; " + _REPAIR,
    )
    CONSUMER_OFFSET_AHEAD = KindText(
        _W,
        "a group's offset is after its queue's end: it misses messages until the queue reaches it",
        "set it with `aerobee offset reset`",
    )
    CONSUMER_OFFSET_REMOVED = KindText(
        _N, "a group's offset is before the first message that is still there", _NOTHING
    )
    SPARE_FILE = KindText(
        _N, "a file prepared as the next segment was left over", "the next start removes it"
    )
    NOT_CHECKED = KindText(_N, "these files were not checked", _NOTHING)

    @property
    def severity(self) -> Severity:
        return self.value.severity

    @property
    def meaning(self) -> str:
        return self.value.meaning

    @property
    def advice(self) -> str:
        return self.value.advice


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation. `position` is a byte offset in `file`, if it is about one place."""

    kind: Kind
    severity: Severity
    file: str
    text: str
    position: int | None = None
    details: dict[str, object] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return self.kind.name


class Findings:
    """All findings, counted; only this many of each kind are kept, because everything in a store
    may be wrong."""

    def __init__(self, *, kept_per_kind_max: int = 200) -> None:
        self._kept_per_kind_max = kept_per_kind_max
        self._kept: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self._by_severity: Counter[Severity] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._kept)

    def __len__(self) -> int:
        """The number of findings, kept or not."""
        return self.counts.total()

    def add(
        self,
        kind: Kind,
        file: str,
        text: str,
        *,
        position: int | None = None,
        severity: Severity | None = None,
        **details: object,
    ) -> None:
        """Count a finding; `severity` if it differs from the kind's own."""
        self.counts[kind] += 1
        severity = severity or kind.severity
        self._by_severity[severity] += 1
        if self.counts[kind] <= self._kept_per_kind_max:
            self._kept.append(Finding(kind, severity, file, text, position, details))

    def count_of(self, severity: Severity) -> int:
        return self._by_severity[severity]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged; there may be notes and warnings."""
        return not self._by_severity[Severity.DAMAGE]

    def worst_first(self) -> list[Finding]:
        order = (Severity.DAMAGE, Severity.WARNING, Severity.NOTE)
        return sorted(self._kept, key=lambda finding: order.index(finding.severity))
