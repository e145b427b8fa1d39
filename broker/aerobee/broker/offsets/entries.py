"""What the offset journal says: its entries and their JSON; docs/offset-journal.md has their
members. What a record is, and the end of an image, are every journal's: see broker/journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.journal.records import ImageEnd, read_body, text_of, whole_of
from aerobee.broker.offsets.merge import Change, ChangeKind
from aerobee.broker.offsets.sent_back import (
    OutOfTurn,
    decode_out_of_turn,
    out_of_turn_document,
)
from aerobee.store_format import topic_end

JOURNAL_TOPIC = topic_end.JOURNAL_TOPIC

LEASE_PART_BYTES = 32 * 1024
"""About what the members and leases of one entry take; a longer record takes several. Only one
member with very many subscriptions makes an entry longer."""

_LEASE_KIND = "lease"
_REMOVE_KIND = "remove"
_TOPIC_END_KIND = "topicEnd"
_TOPIC_END_KNOWN_KIND = "topicEndKnown"
_TOPIC_LIVES_ON_KIND = "topicLivesOn"
_CHANGE_KINDS = frozenset(ChangeKind)


class OffsetEntry(NamedTuple):
    """A group's offset on one queue has changed, or is said again."""

    key: GroupQueue
    change: Change
    timestamp_ms: int
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """The queue leases of a broker's term. A long record comes in `parts`, all with the same
    head."""

    record: RunRecord
    timestamp_ms: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Committed offsets are gone: those of a group, of a topic, of a group on a topic, or of a
    group on one queue. What is None selects all; group or topic is given, a queue with both."""

    group: str | None
    topic: str | None
    queue_id: int | None
    timestamp_ms: int
    reason: str = ""
    """For people who read the journal."""

    def __post_init__(self) -> None:
        has_both = self.group is not None and self.topic is not None
        is_legal = has_both or (
            self.queue_id is None and (self.group is not None or self.topic is not None)
        )
        if not is_legal:
            raise ValueError("a removal names a group, a topic, or a queue of both")

    @property
    def queue(self) -> GroupQueue:
        """The one queue of one group that it names."""
        assert self.group is not None, self
        assert self.topic is not None, self
        assert self.queue_id is not None, self
        return GroupQueue(self.group, self.topic, self.queue_id)

    def selects(self, key: GroupQueue) -> bool:
        return (
            self.group in (None, key.group)
            and self.topic in (None, key.topic)
            and self.queue_id in (None, key.queue_id)
        )


@dataclass(frozen=True, slots=True)
class TopicEnded(OffsetsRemoved):
    """A deleted topic has ended here, with all its messages and offsets. It is alone in its record,
    by which the store knows it, too: see `store_format.topic_end`."""

    deleted_at_ms: int = 0
    """When it was deleted in the cluster. Of each topic it only rises."""
    lease_epoch: int = 0
    """The newest queue lease that was granted before: under that, or older ones, nobody commits to
    the topic's next life."""

    @classmethod
    def of(cls, topic: str, deleted_at_ms: int, lease_epoch: int, timestamp_ms: int) -> Self:
        return cls(None, topic, None, timestamp_ms, "topic deleted", deleted_at_ms, lease_epoch)


@dataclass(frozen=True, slots=True)
class TopicEndKnown:
    """Within an image: a topic has ended before."""

    topic: str
    deleted_at_ms: int
    lease_epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicLivesOn:
    """What there is of a topic is of a later life than the one deleted then: a caller that waits
    for that end waits for nothing, and no later master writes it."""

    topic: str
    deleted_at_ms: int
    timestamp_ms: int


Entry = OffsetEntry | LeaseEntry | OffsetsRemoved | TopicEndKnown | TopicLivesOn | OutOfTurn


def offset_text(entry: OffsetEntry) -> str:
    """One entry as JSON; many a second, so by hand."""
    key, change, timestamp_ms, client_id = entry
    group, topic, queue_id = key
    kind, offset, lease_epoch = change
    return (
        f'{{"group":{json.dumps(group)},"topic":{json.dumps(topic)},"queueId":{queue_id},'
        f'"offset":{offset},"leaseEpoch":{lease_epoch},"timestamp":{timestamp_ms},'
        f'"clientId":{json.dumps(client_id)},"kind":"{kind}"}}'
    )


def entry_text(entry: Entry) -> str:
    """One entry as JSON."""
    if isinstance(entry, OffsetEntry):
        return offset_text(entry)
    document: dict[str, object]
    if isinstance(entry, LeaseEntry):
        document = {
            "kind": _LEASE_KIND,
            "timestamp": entry.timestamp_ms,
            "part": entry.part,
            "parts": entry.parts,
            "lease": entry.record.as_object(),
        }
    elif isinstance(entry, TopicEnded | TopicEndKnown):
        document = {
            "kind": _TOPIC_END_KIND if isinstance(entry, TopicEnded) else _TOPIC_END_KNOWN_KIND,
            "topic": entry.topic,
            "deletedAt": entry.deleted_at_ms,
            "leaseEpoch": entry.lease_epoch,
            "timestamp": entry.timestamp_ms,
        }
    elif isinstance(entry, TopicLivesOn):
        document = {
            "kind": _TOPIC_LIVES_ON_KIND,
            "topic": entry.topic,
            "deletedAt": entry.deleted_at_ms,
            "timestamp": entry.timestamp_ms,
        }
    elif not isinstance(entry, OffsetsRemoved):
        document = out_of_turn_document(entry)
    else:
        selected = {"group": entry.group, "topic": entry.topic, "queueId": entry.queue_id}
        document = {
            "kind": _REMOVE_KIND,
            **{name: value for name, value in selected.items() if value is not None},
            "timestamp": entry.timestamp_ms,
            "reason": entry.reason,
        }
    return json.dumps(document, separators=(",", ":"))


def decode_body(body: bytes) -> list[Entry | ImageEnd]:
    """The entries of a body, without those of unknown kinds. Raises ValueError: it is none."""
    return cast("list[Entry | ImageEnd]", read_body(body, decode_entry))


def lease_entries(record: RunRecord, timestamp_ms: int) -> list[LeaseEntry]:
    """The record in as many parts as it needs."""
    parts = record.parts(LEASE_PART_BYTES)
    return [LeaseEntry(part, timestamp_ms, number, len(parts)) for number, part in enumerate(parts)]


class LeaseParts:
    """Puts records of leases together again, part by part."""

    def __init__(self, parts: Sequence[LeaseEntry] = ()) -> None:
        self._parts = list(parts)

    def copy(self) -> LeaseParts:
        return LeaseParts(self._parts)

    def take(self, entry: LeaseEntry) -> RunRecord | None:
        """The next part; the record with its last one. None: more is to come, or parts before this
        one are missing."""
        if entry.part == 0:
            self._parts = []
        self._parts.append(entry)
        if len(self._parts) != entry.part + 1:
            self._parts = []
        elif len(self._parts) == entry.parts:
            parts, self._parts = self._parts, []
            return RunRecord.join([each.record for each in parts])
        return None


def decode_entry(value: dict[str, Any]) -> Entry | None:
    """The entry that a JSON object is; None: its kind is unknown. Raises KeyError, TypeError,
    AttributeError or ValueError for what is no entry."""
    kind = value["kind"]
    if kind in _CHANGE_KINDS:
        return OffsetEntry(
            GroupQueue(
                text_of(value["group"]), text_of(value["topic"]), whole_of(value["queueId"])
            ),
            Change(ChangeKind(kind), whole_of(value["offset"]), whole_of(value["leaseEpoch"])),
            whole_of(value["timestamp"]),
            text_of(value["clientId"]),
        )
    if kind == _LEASE_KIND:
        return LeaseEntry(
            RunRecord.from_object(value["lease"]),
            whole_of(value["timestamp"]),
            whole_of(value["part"]),
            whole_of(value["parts"]),
        )
    if kind == _REMOVE_KIND:
        return OffsetsRemoved(
            text_of(value["group"]) if "group" in value else None,
            text_of(value["topic"]) if "topic" in value else None,
            whole_of(value["queueId"]) if "queueId" in value else None,
            whole_of(value["timestamp"]),
            text_of(value["reason"]),
        )
    if kind in (_TOPIC_END_KIND, _TOPIC_END_KNOWN_KIND):
        make = TopicEnded.of if kind == _TOPIC_END_KIND else TopicEndKnown
        return make(
            text_of(value["topic"]),
            whole_of(value["deletedAt"]),
            whole_of(value["leaseEpoch"]),
            whole_of(value["timestamp"]),
        )
    if kind == _TOPIC_LIVES_ON_KIND:
        return TopicLivesOn(
            text_of(value["topic"]), whole_of(value["deletedAt"]), whole_of(value["timestamp"])
        )
    return decode_out_of_turn(value)
