"""The offset journal's entries and their JSON; docs/internals/offset-journal.md lists their
members. Records and the end of an image are common to all journals: see broker/journal.
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
from aerobee.store.format import topic_end

JOURNAL_TOPIC = topic_end.JOURNAL_TOPIC

LEASE_PART_BYTES = 32 * 1024
"""Approximate size of the members and leases in one entry; a longer record takes several. Only a
single member with very many subscriptions makes an entry longer."""

_LEASE_KIND = "lease"
_REMOVE_KIND = "remove"
_TOPIC_END_KIND = "topicEnd"
_TOPIC_END_KNOWN_KIND = "topicEndKnown"
_TOPIC_LIVES_ON_KIND = "topicLivesOn"
_CHANGE_KINDS = frozenset(ChangeKind)


class OffsetEntry(NamedTuple):
    """A group's offset on one queue has changed, or is repeated."""

    key: GroupQueue
    change: Change
    timestamp_ms: int
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """The queue leases of a broker's term. A long record comes in `parts` with the same head."""

    record: RunRecord
    timestamp_ms: int
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class OffsetsRemoved:
    """Committed offsets were removed: those of a group, of a topic, of a group on a topic, or of a
    group on one queue. None selects all; a group or a topic is always given, and both with a
    queue."""

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
        """The queue, if the entry names a group and a queue."""
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
    """A deleted topic has ended here, with all its messages and offsets. The entry is alone in its
    record, in which the store recognises it, too: see `store.format.topic_end`."""

    deleted_at_ms: int = 0
    """When it was deleted in the cluster; only rises for any one topic."""
    lease_epoch: int = 0
    """The newest queue lease granted before; none up to it may commit to the topic's next life."""

    @classmethod
    def of(cls, topic: str, deleted_at_ms: int, lease_epoch: int, timestamp_ms: int) -> Self:
        return cls(None, topic, None, timestamp_ms, "topic deleted", deleted_at_ms, lease_epoch)


@dataclass(frozen=True, slots=True)
class TopicEndKnown:
    """Within an image: a topic has ended earlier."""

    topic: str
    deleted_at_ms: int
    lease_epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicLivesOn:
    """What exists of the topic belongs to a later life than the one deleted then: that end will
    never come, so nobody need wait for it, and no later master writes it."""

    topic: str
    deleted_at_ms: int
    timestamp_ms: int


Entry = OffsetEntry | LeaseEntry | OffsetsRemoved | TopicEndKnown | TopicLivesOn | OutOfTurn


def offset_text(entry: OffsetEntry) -> str:
    """One entry as JSON; written by hand because there are many per second."""
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
    """The entries of a body, without unknown kinds. Raises ValueError: it is not a body."""
    return cast("list[Entry | ImageEnd]", read_body(body, decode_entry))


def lease_entries(record: RunRecord, timestamp_ms: int) -> list[LeaseEntry]:
    """The record in as many parts as it needs."""
    parts = record.parts(LEASE_PART_BYTES)
    return [LeaseEntry(part, timestamp_ms, number, len(parts)) for number, part in enumerate(parts)]


class LeaseParts:
    """Reassembles lease records from their parts."""

    def __init__(self, parts: Sequence[LeaseEntry] = ()) -> None:
        self._parts = list(parts)

    def copy(self) -> LeaseParts:
        return LeaseParts(self._parts)

    def take(self, entry: LeaseEntry) -> RunRecord | None:
        """Take the next part; returns the record with its last part. None: more parts follow, or
        earlier ones are missing."""
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
    """The entry in a JSON object; None: its kind is unknown. Raises KeyError, TypeError,
    AttributeError or ValueError if it is not an entry."""
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
