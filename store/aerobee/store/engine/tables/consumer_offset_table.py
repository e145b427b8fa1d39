"""consumerOffset.json: what each group will consume next, in memory.

Owns: the committed offsets of this broker's queues, and their form in Apache's file. They are a
snapshot of the offset journal: an additional member, which Apache's broker ignores, says how far
they include the journal, has the journal's other state, and a checksum of the whole file. No I/O:
the owner takes a `snapshot` and has a thread render and write it.

Invariant: entries that are not `topic@group` with queue offsets are written back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from aerobee.store.engine.tables.config_document import ConfigDocument, parse_document, take_object
from aerobee.store.engine.tables.finished_ranges import (
    FinishedRanges,
    FinishedTable,
    QueueKey,
    render_finished,
)
from aerobee.store.engine.tables.last_changes import LastChange, LastChanges
from aerobee.store.engine.tables.offset_texts import OffsetRow, OffsetTexts
from aerobee.store.format.content_check import UNCHECKED, is_as_written, with_check
from aerobee.store.format.json_config import JsonValue, render_text

CONSUMER_OFFSETS_PATH = "config/consumerOffset.json"

JOURNAL_MEMBER = "aerobeeJournal"
"""Our own member: see docs/internals/offset-journal.md."""

ROWS_PER_TURN: Final = 256
"""A row is what a group has of a topic; copying one takes some microseconds."""
TOPIC_ENDS_MAX: Final = 20_000
"""How many are kept: twice as many as nameservers report."""

_OFFSET_END = 1 << 63


class OpenCopy(NamedTuple):
    """A copy of a sent-back message which may not be in the log yet."""

    record: int
    """The number of the journal record with this entry."""
    text: str
    """The entry, as JSON."""


@dataclass(frozen=True, slots=True)
class JournalMark:
    """How far the table includes the offset journal."""

    next_offset: int = 0
    """The queue offset of the first record that is not included."""
    image_position: int = 0
    """The journal from this log position on contains the whole state; -1: possibly not."""
    is_whole: bool = True
    """Whether the table has the whole state."""
    lease: str = ""
    """The newest record of queue leases, as JSON; empty: none yet."""
    topic_ends_from_ms: int = 0
    """Ends of topics that were deleted before this time, Unix ms, may be missing in the table."""
    next_copy: int = 0
    """The number of the next copy of a sent-back message."""
    copied_through: int = 0
    """All copies with lower numbers are in the log."""
    open_copies: tuple[OpenCopy, ...] = ()


class Tried(NamedTuple):
    """A message consumed in order, and how often it has failed."""

    offset: int
    attempts: int


class TopicEnd(NamedTuple):
    """A deleted topic's end: when it was deleted, Unix ms; the record that says so; the newest
    queue lease granted before."""

    deleted_at_ms: int
    record: int
    lease_epoch: int


class Doubted(NamedTuple):
    """A table whose file was changed by something else, so that the journal is read again."""

    through: int
    """Once the journal's records below this one are applied, the table is right."""
    offsets: dict[str, dict[str, dict[int, int]]]
    """What it said."""


class ConsumerOffsetTable:
    """consumerOffset.json in memory: per group, topic and queue the next offset to consume.

    A snapshot renders only what was committed since the last one: its time on the loop must stay
    short.
    """

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        # Lease epochs of queues, if a lease was presented; by (topic, group), as in the file.
        self._epochs: dict[tuple[str, str], dict[int, int]] = {}
        self._mark: JournalMark | None = JournalMark()
        self._last = LastChanges()
        self._texts = OffsetTexts()
        self._changed: set[tuple[str, str]] = set()
        """The (topic, group) pairs whose texts are out of date."""
        self.rendered_mark: JournalMark | None = None
        """The mark in the latest snapshot."""
        self._topic_ends: dict[str, TopicEnd] = {}
        self.finished = FinishedTable()
        """What is finished after the offsets; a caller that changes it also sets the `mark`."""
        self.tried: dict[QueueKey, Tried] = {}
        """At most one per queue; a caller that changes it also sets the `mark`."""
        self._document = ConfigDocument()
        self.is_as_written = True
        """Whether nothing else has changed its file since a broker wrote it; True if that cannot be
        known: Apache's broker wrote it, or one of ours that knew no checksum."""
        self.doubted: Doubted | None = None
        self.rewinds = 0
        """How often a group has come to need more than before: through its first offset on a queue,
        or a smaller one."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The table in a file's bytes. Raises ValueError for anything else."""
        document = parse_document(data)
        table = cls()
        for key, queues in take_object(document, "offsetTable").items():
            topic, _, group = key.partition("@")
            offsets = _queue_offsets(queues)
            if not topic or not group or "@" in group or offsets is None:
                table._texts.keep(key, queues)
            else:
                table._offsets.setdefault(group, {})[topic] = offsets
                table._changed.add((topic, group))
        member = take_object(document, JOURNAL_MEMBER)
        table._load_journal(member)
        table.is_as_written = "contentCheck" not in member or is_as_written(data)
        # Apache derives this from the offsets on each write, and never reads it.
        document.pop("groupTopicMap", None)
        table._document = ConfigDocument.load(document)
        return table

    def doubt(self, mark: JournalMark, through: int) -> None:
        """Take what the journal says from `mark` on, up to the record `through`, for what the table
        lacks or has lower. What the journal does not say stays."""
        self.doubted = Doubted(through, {group: self.of_group(group) for group in self._offsets})
        # Fences would keep commits from counting that were made before the newest lease.
        self._changed.update(self._epochs)
        self._epochs.clear()
        self.finished = FinishedTable()
        self.tried.clear()
        self.mark = mark

    def _load_journal(self, member: dict[str, JsonValue]) -> None:
        """Without the member the file is Apache's, or from before the journal existed."""
        self._mark = None
        if not member:
            return
        lease = member.get("lease")
        copies = take_object(member, "copies")
        self._mark = JournalMark(
            _whole(member, "nextOffset", 0),
            _whole(member, "imagePosition", -1),
            member.get("whole") is not False,
            "" if lease is None else json.dumps(lease, separators=(",", ":")),
            _whole(member, "topicEndsFrom", 0),
            _whole(copies, "next", 0),
            _whole(copies, "copiedThrough", 0),
            _open_copies(copies.get("open", [])),
        )
        self.finished.load(take_object(member, "finished"))
        self.tried = _tried_of(take_object(member, "tried"))
        for topic, value in take_object(member, "topicEnds").items():
            match value:
                case [int(deleted_at_ms), int(record), int(lease_epoch)]:
                    self._topic_ends[topic] = TopicEnd(deleted_at_ms, record, lease_epoch)
                case _:
                    raise ValueError(
                        f"the end of {topic!r:.40} is not a time, a record and a lease"
                    )
        for key, value in take_object(member, "epochs").items():
            topic, _, group = key.partition("@")
            epochs = _queue_offsets(value)
            if epochs is None:
                raise ValueError(f"the epochs of {key!r:.40} are not numbers by queue id")
            known = self._offsets.get(group, {}).get(topic, {})
            kept = {queue_id: epoch for queue_id, epoch in epochs.items() if queue_id in known}
            if kept:
                self._epochs[topic, group] = kept
        changes = take_object(member, "changes")
        self._last.load(changes, member.get("clients"), self.query)

    @property
    def mark(self) -> JournalMark | None:
        """None: how far this table includes the journal is unknown; it came from elsewhere."""
        return self._mark

    @mark.setter
    def mark(self, mark: JournalMark) -> None:
        if mark != self._mark:
            self._mark = mark
            self._document.changes += 1

    @property
    def topic_ends(self) -> Mapping[str, TopicEnd]:
        """Deleted topics whose ends are in the journal, up to the mark: the newest ones."""
        return self._topic_ends

    def note_topic_end(self, topic: str, end: TopicEnd) -> None:
        """The topic has ended; a name may end repeatedly."""
        self._topic_ends.pop(topic, None)
        self._topic_ends[topic] = end
        if len(self._topic_ends) > TOPIC_ENDS_MAX:
            del self._topic_ends[next(iter(self._topic_ends))]
        self._document.changes += 1

    def cut_topic_ends(self, journal_end: int) -> None:
        """Drop those in journal records from this one on."""
        kept = {name: end for name, end in self._topic_ends.items() if end.record < journal_end}
        self._topic_ends = kept

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the next offset to consume, possibly lower (a reset). Who did it is unknown."""
        self._set(group, topic, queue_id, offset)
        self.note_change(group, topic, queue_id, None)

    def _set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        assert 0 <= offset < _OFFSET_END, offset
        assert queue_id >= 0, queue_id
        topics = self._offsets.get(group)
        if topics is None:
            topics = self._offsets[group] = {}
        queues = topics.get(topic)
        if queues is None:
            queues = topics[topic] = {}
        before = queues.get(queue_id)
        if before != offset:
            queues[queue_id] = offset
            if before is None or offset < before:
                self.rewinds += 1
            self._changed.add((topic, group))
            self._document.changes += 1

    def put(self, group: str, topic: str, queue_id: int, offset: int, epoch_min: int) -> None:
        """Set the offset, and the lease epoch below which commits are ignored; 0: none. Record who
        did it with `note_change`."""
        self._set(group, topic, queue_id, offset)
        if self.epoch_min(group, topic, queue_id) != epoch_min:
            self._epochs.setdefault((topic, group), {})[queue_id] = epoch_min
            self._changed.add((topic, group))
            self._document.changes += 1

    def note_change(self, group: str, topic: str, queue_id: int, change: LastChange | None) -> None:
        """What last changed the offset; None: unknown."""
        if change is None:
            self._last.forget(topic, group, queue_id)
        else:
            self._last.note(topic, group, queue_id, change)
        self._changed.add((topic, group))

    def last_changes(self, group: str, topic: str) -> Mapping[int, LastChange]:
        """What last changed the group's offsets on a topic, by queue id, as far as known."""
        return self._last.of_queues(topic, group)

    def last_client(self, group: str, topic: str, queue_id: int) -> str:
        """The client of the queue's last change; empty: unknown."""
        change = self._last.get(topic, group, queue_id)
        return "" if change is None else change.client_id

    def newest_change_ms(self, group: str, topic: str) -> int:
        """When any of the group's offsets on the topic last changed; 0: unknown."""
        return self._last.newest_ms(topic, group)

    def epochs_min(self, group: str, topic: str) -> Mapping[int, int]:
        """`epoch_min` by queue id, where it is not 0."""
        return self._epochs.get((topic, group), {})

    def epoch_min(self, group: str, topic: str, queue_id: int) -> int:
        """See `put`."""
        epochs = self._epochs.get((topic, group))
        return 0 if epochs is None else epochs.get(queue_id, 0)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """None if the group never committed on this queue."""
        return self._offsets.get(group, {}).get(topic, {}).get(queue_id)

    def groups(self) -> list[str]:
        """Groups that have committed anything, sorted."""
        return sorted(self._offsets)

    @property
    def group_count(self) -> int:
        """How many groups have committed anything."""
        return len(self._offsets)

    def topics_of(self, group: str) -> list[str]:
        """Topics on whose queues the group has committed anything."""
        return list(self._offsets.get(group, ()))

    def has_committed(self, group: str, topic: str) -> bool:
        """Whether the group has committed anything on any of the topic's queues."""
        return topic in self._offsets.get(group, ())

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """queue id -> offset; a copy."""
        return dict(self._offsets.get(group, {}).get(topic, {}))

    def of_group(self, group: str) -> dict[str, dict[int, int]]:
        """topic -> queue id -> offset; a copy."""
        return {topic: dict(queues) for topic, queues in self._offsets.get(group, {}).items()}

    def remove(self, group: str, topic: str, queue_id: int) -> None:
        """Forget the group's offset on one queue; does nothing if there is none."""
        queues = self._offsets.get(group, {}).get(topic, {})
        if queue_id not in queues:
            return
        if len(queues) == 1:
            self._remove(group, topic)
            return
        del queues[queue_id]
        epochs = self._epochs.get((topic, group))
        if epochs is not None:
            epochs.pop(queue_id, None)
        self.note_change(group, topic, queue_id, None)
        self._document.changes += 1

    def forget(self, mark: JournalMark) -> None:
        """Drop every offset; the table is then at the journal's `mark`."""
        for group, topics in list(self._offsets.items()):
            for topic in list(topics):
                self._remove(group, topic)
        self._topic_ends.clear()
        self.finished = FinishedTable()
        self.tried.clear()
        self.mark = mark

    def remove_all(self, group: str | None, topic: str | None) -> None:
        """Forget the offsets of a group, of a topic, or of a group on a topic; None: of all."""
        for each in list(self._offsets) if group is None else [group]:
            known = self._offsets.get(each, {})
            for name in list(known) if topic is None else [topic]:
                if name in known:
                    self._remove(each, name)

    @property
    def changes(self) -> int:
        """How often the table has changed since it was created; savers compare it."""
        return self._document.changes

    def as_json(self) -> dict[str, dict[str, int]]:
        """`topic@group` -> queue id -> offset, as in the file."""
        return {
            f"{topic}@{group}": {str(queue_id): offset for queue_id, offset in queues.items()}
            for group, topics in self._offsets.items()
            for topic, queues in topics.items()
        }

    def snapshot_bytes(self, now_ms: int) -> bytes:
        """The whole file as of now."""
        return self.snapshot(now_ms)()

    def prepare(self) -> Iterator[None]:
        """Take copies of most of what has changed, a few milliseconds of work at a time, so that
        the next `snapshot` is quick. The table may change meanwhile."""
        for _ in range(2 * len(self._changed) // ROWS_PER_TURN):
            if len(self._changed) <= ROWS_PER_TURN:
                return
            self._take(ROWS_PER_TURN)
            yield

    def _take(self, count: int) -> None:
        self._texts.take([self._row(*self._changed.pop()) for _ in range(count)])

    def snapshot(self, now_ms: int) -> Callable[[], bytes]:
        """The whole file as of now. Its cost is proportional to what has changed since the last
        one, minus what was prepared. Call the result on any thread; never two at a time."""
        mark = self.rendered_mark = self._mark
        self._take(len(self._changed))
        texts = self._texts
        document = self._document.taken(now_ms)
        ends, clients = tuple(self._topic_ends.items()), self._last.clients()
        finished, tried = self.finished.taken(), self.tried.copy()

        def render() -> bytes:
            texts.update()
            more = {}
            if mark is not None:
                more[JOURNAL_MEMBER] = _journal(mark, texts, ends, clients, finished, tried)
            data = document.render(now_ms, "offsetTable", texts.offsets(), more)
            return with_check(data)

        return render

    def _row(self, topic: str, group: str) -> OffsetRow:
        return OffsetRow(
            topic,
            group,
            self._offsets.get(group, {}).get(topic, {}).copy(),
            self._epochs.get((topic, group), {}).copy(),
            self._last.row(topic, group),
        )

    def _remove(self, group: str, topic: str) -> None:
        del self._offsets[group][topic]
        if not self._offsets[group]:
            del self._offsets[group]
        self._epochs.pop((topic, group), None)
        self._last.remove(topic, group)
        self._changed.add((topic, group))
        self._document.changes += 1


def _journal(
    mark: JournalMark,
    texts: OffsetTexts,
    ends: Sequence[tuple[str, TopicEnd]],
    clients: Sequence[str],
    finished: Sequence[tuple[QueueKey, FinishedRanges]],
    tried: Mapping[QueueKey, Tried],
) -> str:
    """Our own member."""
    changes = texts.changes()
    topic_ends = ",".join(
        f"\n\t\t\t{render_text(topic)}:[{end.deleted_at_ms},{end.record},{end.lease_epoch}]"
        for topic, end in ends
    )
    members = [
        *([f'\n\t\t"changes":{changes}'] if changes else ()),
        *([f'\n\t\t"clients":{json.dumps(clients, separators=(",", ":"))}'] if changes else ()),
        f"\n\t\t{UNCHECKED}",
        *([f'\n\t\t"copies":{_copies_text(mark)}'] if mark.next_copy else ()),
        f'\n\t\t"epochs":{texts.epochs()}',
        *([f'\n\t\t"finished":{render_finished(finished)}'] if finished else ()),
        f'\n\t\t"imagePosition":{mark.image_position}',
        *([f'\n\t\t"lease":{mark.lease}'] if mark.lease else ()),
        f'\n\t\t"nextOffset":{mark.next_offset}',
        *([f'\n\t\t"topicEnds":{{{topic_ends}\n\t\t}}'] if topic_ends else ()),
        *([f'\n\t\t"topicEndsFrom":{mark.topic_ends_from_ms}'] if mark.topic_ends_from_ms else ()),
        *([f'\n\t\t"tried":{_tried_text(tried)}'] if tried else ()),
        f'\n\t\t"whole":{"true" if mark.is_whole else "false"}',
    ]
    return "{" + ",".join(members) + "\n\t}"


def _tried_text(tried: Mapping[QueueKey, Tried]) -> str:
    by_name: dict[str, dict[str, list[int]]] = {}
    for (group, topic, queue_id), each in tried.items():
        by_name.setdefault(f"{topic}@{group}", {})[str(queue_id)] = [*each]
    return render_text(by_name)


def _tried_of(member: dict[str, JsonValue]) -> dict[QueueKey, Tried]:
    found: dict[QueueKey, Tried] = {}
    for name, queues in member.items():
        topic, _, group = name.partition("@")
        for number, value in queues.items() if isinstance(queues, dict) else ():
            queue_id = str(number)
            match value:
                case [int(offset), int(attempts)] if queue_id.isascii() and queue_id.isdigit():
                    found[QueueKey(group, topic, int(queue_id))] = Tried(offset, attempts)
                case _:
                    raise ValueError(
                        f"what was tried of {name!r:.40} is not an offset and a number"
                    )
    return found


def _copies_text(mark: JournalMark) -> str:
    entries = ",".join(f"[{each.record},{each.text}]" for each in mark.open_copies)
    return f'{{"copiedThrough":{mark.copied_through},"next":{mark.next_copy},"open":[{entries}]}}'


def _open_copies(value: JsonValue) -> tuple[OpenCopy, ...]:
    if not isinstance(value, list):
        raise ValueError("the open copies are not a list")
    found = []
    for each in value:
        match each:
            case [int(record), dict(entry)]:
                found.append(OpenCopy(record, json.dumps(entry, separators=(",", ":"))))
            case _:
                raise ValueError("an open copy is not a record and an entry")
    return tuple(found)


def _whole(member: dict[str, JsonValue], name: str, lowest: int) -> int:
    value = member.get(name, lowest)
    if type(value) is not int or not lowest <= value < _OFFSET_END:
        raise ValueError(f"{name!r} must be a whole number, not {value!r:.40}")
    return value


def _queue_offsets(value: JsonValue) -> dict[int, int] | None:
    """queue id -> offset; None if the value is anything else."""
    if not isinstance(value, dict):
        return None
    offsets: dict[int, int] = {}
    for key, offset in value.items():
        if not isinstance(key, str) or not (key.isascii() and key.isdigit()):
            return None
        if type(offset) is not int or not 0 <= offset < _OFFSET_END:
            return None
        offsets[int(key)] = offset
    return offsets
