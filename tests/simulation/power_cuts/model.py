"""What a run has done so far, kept outside the store: the truth for judging a power cut."""

from __future__ import annotations

from dataclasses import dataclass, field

UNIQUE_KEY_PREFIX = "u"


@dataclass(frozen=True, slots=True)
class Sent:
    """One appended record. `queue_offset` is None if it has no queue entry."""

    topic: str
    queue_id: int
    queue_offset: int | None
    start: int
    end: int
    data: bytes
    store_timestamp_ms: int
    keys: frozenset[str] = frozenset()
    # The topic's name, for a record that ends a topic.
    ends_topic: str = ""

    def __str__(self) -> str:
        place = "-" if self.queue_offset is None else str(self.queue_offset)
        ends = f" ends {self.ends_topic}" if self.ends_topic else ""
        return f"{self.start}..{self.end} {self.topic}/{self.queue_id}@{place}{ends}"


@dataclass(slots=True)
class DocumentState:
    """A config file and its possible contents. There is only one unless a replacement is under way,
    or was when the process was killed."""

    allowed: list[bytes | None] = field(default_factory=lambda: [None])


@dataclass(slots=True)
class Model:
    """`acknowledged_end`: everything before it in the log was promised to survive anything."""

    sent: list[Sent] = field(default_factory=list)
    # Of a failed append: the disk may have a part of it, from its beginning.
    doubtful: list[Sent] = field(default_factory=list)
    acknowledged_end: int = 0
    # Where the log may begin: a single place unless a removal is or was under way.
    min_offsets: list[int] = field(default_factory=lambda: [0])
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    documents: dict[str, DocumentState] = field(default_factory=dict)
    # A clean close returned and nothing was done since.
    is_closed: bool = False
    # Since the store was last open: the power was lost; and the page cache's content is gone, or
    # was never written because a sync failed.
    lost_power: bool = False
    lost_cache: bool = False
    # The process was killed, but the machine continues.
    was_killed: bool = False

    @property
    def appended_end(self) -> int:
        return self.sent[-1].end if self.sent else 0

    def add(self, sent: Sent) -> None:
        self.sent.append(sent)
        self._count(sent)

    def _count(self, sent: Sent) -> None:
        for name in self.next_offsets:
            if name[0] == sent.ends_topic:
                self.next_offsets[name] = 0
        if sent.queue_offset is not None:
            self.next_offsets[sent.topic, sent.queue_id] = sent.queue_offset + 1

    def next_offset(self, topic: str, queue_id: int) -> int:
        return self.next_offsets.get((topic, queue_id), 0)

    def cut(self, end: int) -> None:
        """The log now ends at `end`."""
        for doubtful in self.doubtful:
            self.add(doubtful)
        self.doubtful = []
        self.sent = [sent for sent in self.sent if sent.end <= end]
        self.next_offsets = dict.fromkeys(self.next_offsets, 0)
        for sent in self.sent:
            self._count(sent)

    def end_position(self, topic: str) -> int:
        """Nothing of the topic's present life is before this log position."""
        return max((sent.start for sent in self.sent if sent.ends_topic == topic), default=0)
