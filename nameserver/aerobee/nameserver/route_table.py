"""PURE: the cluster as of one etcd revision, as an immutable value.

A table comes from a snapshot and the changes after it; the same keys and revisions give the same
table on every nameserver. Deleted topics are remembered, up to a limit, so that a broker can be
told what it missed; one that missed more is told everything. A snapshot does not show earlier
deletions: a topic may have come and gone while no nameserver watched.

Invariant: `version` only rises along `apply`. It is the revision of the snapshot or of the last
change that the table has seen, including changes that routes do not show: so versions of
nameservers can be compared whenever they took their snapshots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType
from typing import TypeVar

from aerobee.nameserver import election
from aerobee.nameserver.key_values import KeyEvent, KeyValue, Snapshot
from aerobee.nameserver.stored import (
    Backup,
    BrokerKey,
    BrokerRecord,
    DurableKey,
    History,
    Keys,
    ReplicaSet,
    SetState,
    Topic,
    TopicDeletion,
    Unreadable,
)
from aerobee.nameserver.stored_access import AccessKey, PolicyKey, QuotaKey, StoredAccess, UserKey

DELETED_TOPICS_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_DELETIONS: Mapping[str, TopicDeletion] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """What a broker must learn about topics."""

    changed: tuple[Topic, ...]
    deleted: tuple[tuple[str, int], ...]
    """Name and revision of the deletion."""
    complete: bool
    """`changed` is everything that exists; any other topic the broker knows is gone."""
    revision: int
    """The broker knows everything up to here once it has applied this."""
    deletions: Mapping[str, TopicDeletion] = field(default_factory=lambda: _NO_DELETIONS)
    """All that are remembered, by name."""

    def deleted_at_ms(self, name: str) -> int:
        """When a topic of this name was last deleted, Unix ms; 0: never."""
        deletion = self.deletions.get(name)
        return 0 if deletion is None else deletion.at_ms


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Brokers, replica sets and topics at `version`."""

    version: int
    brokers: Mapping[BrokerKey, BrokerRecord]
    replica_sets: Mapping[str, ReplicaSet]
    topics: Mapping[str, Topic]
    """In the order of their last changes."""
    queue_counts: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Replica set -> its number of queues over all topics."""
    deleted_topics: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Name -> revision of the deletion, for deletions after `deletions_since`."""
    deletions_since: int = 0
    deletions: Mapping[str, TopicDeletion] = field(default_factory=lambda: _NO_DELETIONS)
    """By name; including topics that were created again."""
    last_deletion: int = 0
    """Revision of the newest one."""
    unreadable: frozenset[str] = frozenset()
    """Keys whose values make no sense; treated as if they did not exist."""
    history: str = ""
    """The history of etcd that the revisions belong to; empty: not named yet."""
    changed_at: int = 0
    """The revision of the last change to anything that the table shows."""
    access: StoredAccess = field(default_factory=StoredAccess)
    """Users and policies."""
    backups: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """What was backed up -> when, Unix ms; used only for metrics."""

    @classmethod
    def from_snapshot(cls, keys: Keys, snapshot: Snapshot) -> RouteTable:
        """The whole table as of the snapshot's revision; earlier deletions are unknown."""
        revision = snapshot.revision
        empty = cls(revision, {}, {}, {}, deletions_since=revision, changed_at=revision)
        entries = [entry for entry in snapshot.entries if _is_shown(keys, entry.key)]
        entries.sort(key=lambda entry: entry.revision)
        return empty._changed(keys, [(entry.key, entry) for entry in entries])

    def apply(self, keys: Keys, events: Sequence[KeyEvent]) -> RouteTable:
        """The table after `events`; events that an earlier snapshot already contains are
        skipped."""
        news = [event for event in events if event.revision > self.version]
        if not news:
            return self
        version = max(event.revision for event in news)
        shown = [event for event in news if _is_shown(keys, event.key)]
        if not shown:
            return dataclasses.replace(self, version=version)
        table = dataclasses.replace(
            self._changed(keys, [(event.key, _entry_of(event)) for event in shown]),
            version=version,
            changed_at=max(event.revision for event in shown),
        )
        gone = {
            event.key: event.revision
            for event in events
            if event.value is None and event.revision > self.version
        }
        return table._remember_deletions(self, keys, gone)

    def _changed(self, keys: Keys, changes: Iterable[tuple[str, KeyValue | None]]) -> RouteTable:
        """Copies with each key set, or removed where its entry is None or unreadable."""
        brokers, replica_sets = dict(self.brokers), dict(self.replica_sets)
        topics, unreadable = dict(self.topics), set(self.unreadable)
        queue_counts = dict(self.queue_counts)
        deletions, history = dict(self.deletions), self.history
        last_deletion, backups = self.last_deletion, dict(self.backups)
        access: dict[AccessKey, bytes | None] = {}
        for key, entry in changes:
            unreadable.discard(key)
            try:
                value = None if entry is None else keys.decode(entry)
            except Unreadable:
                unreadable.add(key)
                value = None
            match keys.parse(key):
                case BrokerKey() as broker_key:
                    _set(brokers, broker_key, value if isinstance(value, BrokerRecord) else None)
                case ("groups", name):
                    _set(replica_sets, name, value if isinstance(value, ReplicaSet) else None)
                case ("topics", name):
                    topic = value if isinstance(value, Topic) else None
                    _count_queues(queue_counts, topics.pop(name, None), topic)
                    _set(topics, name, topic)
                case ("deleted", name):
                    deletion = value if isinstance(value, TopicDeletion) else None
                    _set(deletions, name, deletion)
                    last_deletion = max(last_deletion, deletion.revision if deletion else 0)
                case ("backups", what):
                    _set(backups, what, value.at_ms if isinstance(value, Backup) else None)
                case ("history", _):
                    history = value.id if isinstance(value, History) else ""
                case UserKey() | PolicyKey() | QuotaKey() as access_key:
                    access[access_key] = None if entry is None else entry.value
        return dataclasses.replace(
            self,
            brokers=brokers,
            replica_sets=replica_sets,
            topics=topics,
            queue_counts=queue_counts,
            deletions=deletions,
            last_deletion=last_deletion,
            history=history,
            unreadable=frozenset(unreadable),
            access=self.access.changed(access) if access else self.access,
            backups=backups,
        )

    def _remember_deletions(
        self, before: RouteTable, keys: Keys, gone: Mapping[str, int]
    ) -> RouteTable:
        deleted = {n: r for n, r in before.deleted_topics.items() if n not in self.topics}
        for key, revision in gone.items():
            match keys.parse(key):
                case ("topics", name) if name not in self.topics:
                    deleted[name] = revision
        if deleted == before.deleted_topics:
            return self
        return _forget_oldest(dataclasses.replace(self, deleted_topics=deleted))

    def deleted_at_ms(self, name: str) -> int:
        """When a topic of this name was last deleted, Unix ms; 0: never, or too long ago."""
        deletion = self.deletions.get(name)
        return 0 if deletion is None else deletion.at_ms

    def shows_same_as(self, before: RouteTable) -> bool:
        """Whether the table differs from `before` only in what routes do not show."""
        # Every visible change makes new objects.
        return self.brokers is before.brokers and self.topics is before.topics

    def known_replica_sets(self) -> list[ReplicaSet]:
        """All that hold or may hold messages, by name: those with a record, which outlasts leases,
        and those that only a topic or a live broker names. Without those that were removed."""
        names = {key.broker_name for key in self.brokers}.union(
            self.replica_sets, *(topic.queues_by_broker for topic in self.topics.values())
        )
        return [self.replica_set(name) for name in sorted(names) if not self.is_removed(name)]

    def replica_set(self, broker_name: str) -> ReplicaSet:
        """The replica set as stored; without a record it has no master."""
        return self.replica_sets.get(broker_name, ReplicaSet(broker_name))

    def is_open(self, broker_name: str) -> bool:
        """Whether the replica set takes new messages, as far as operators decide."""
        return self.replica_set(broker_name).state is SetState.OPEN

    def is_removed(self, broker_name: str) -> bool:
        """Whether an operator has removed the replica set from the cluster."""
        return self.replica_set(broker_name).state is SetState.REMOVED

    def is_master(self, record: BrokerRecord) -> bool:
        """Whether a registered process is the master of its replica set."""
        return election.is_master(self.replica_set(record.key.broker_name), record)

    def replicas_of(self, replica_set: ReplicaSet) -> dict[int, BrokerRecord]:
        """The live replicas of a replica set, by id."""
        keys = (BrokerKey(replica_set.broker_name, broker_id) for broker_id in replica_set.replicas)
        return {key.broker_id: self.brokers[key] for key in keys if key in self.brokers}

    def live_by_replica_set(self) -> dict[str, dict[int, BrokerRecord]]:
        """All live brokers, by replica set and id."""
        replica_sets: dict[str, dict[int, BrokerRecord]] = {}
        for key, record in self.brokers.items():
            replica_sets.setdefault(key.broker_name, {})[key.broker_id] = record
        return replica_sets

    def brokers_of(self, topic: Topic) -> tuple[BrokerRecord, ...]:
        """Live brokers of the replica sets that hold queues of `topic`, by name and id."""
        replica_sets = topic.queues_by_broker
        return tuple(
            self.brokers[key] for key in sorted(self.brokers) if key.broker_name in replica_sets
        )

    def replica_sets_for_queues(self) -> tuple[str, ...]:
        """Replica sets that are open and whose master is alive, by name: they can take queues."""
        masters = (record for record in self.brokers.values() if self.is_master(record))
        names = sorted(record.key.broker_name for record in masters)
        return tuple(each for each in names if self.is_open(each))

    def short_of_replicas(self) -> dict[str, str]:
        """Replica sets that take no messages because too few of their replicas are in sync, by
        name: how many are, and how many must be."""
        short: dict[str, str] = {}
        for record in self.brokers.values():
            in_sync = len(self.replica_set(record.key.broker_name).in_sync)
            if self.is_master(record) and in_sync < record.in_sync_min:
                short[record.key.broker_name] = f"{in_sync} in sync, {record.in_sync_min} needed"
        return short

    def log_kept_hours(self) -> tuple[int, str] | None:
        """How long every log of the cluster keeps messages, and the broker group with the shortest;
        None: as far as is known, without an end."""
        known = [
            (record.log_kept_hours, record.key.broker_name)
            for record in self.brokers.values()
            if record.log_kept_hours
        ]
        return min(known, default=None)

    def topic_changes_after(self, revision: int) -> TopicChanges:
        """What a broker that knows everything up to `revision` has missed."""
        if revision < self.deletions_since:
            gone = sorted(
                (name, deletion.revision)
                for name, deletion in self.deletions.items()
                if deletion.revision > revision and name not in self.topics
            )
            return TopicChanges(
                self._topics_by_revision(0), tuple(gone), True, self.changed_at, self.deletions
            )
        deleted = sorted(
            ((name, at) for name, at in self.deleted_topics.items() if at > revision),
            key=lambda item: (item[1], item[0]),
        )
        changed = self._topics_by_revision(revision)
        return TopicChanges(
            changed, tuple(deleted), False, max(self.changed_at, revision), self.deletions
        )

    def _topics_by_revision(self, after: int) -> tuple[Topic, ...]:
        newest_first = reversed(list(self.topics.values()))
        newer = list(takewhile(lambda topic: topic.revision > after, newest_first))
        return tuple(sorted(newer, key=lambda topic: (topic.revision, topic.name)))


def _is_shown(keys: Keys, key: str) -> bool:
    """The ends of logs are recorded all the time and change no route, so nobody needs to be
    notified."""
    return not isinstance(keys.parse(key), DurableKey)


def _set(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _count_queues(counts: dict[str, int], before: Topic | None, after: Topic | None) -> None:
    for topic, sign in ((before, -1), (after, 1)):
        for name, queues in topic.queues_by_broker.items() if topic is not None else ():
            counts[name] = counts.get(name, 0) + sign * queues


def _entry_of(event: KeyEvent) -> KeyValue | None:
    if event.value is None:
        return None
    return KeyValue(event.key, event.value, event.revision, event.lease_id)


def _forget_oldest(table: RouteTable) -> RouteTable:
    """Keep the newest deletions; a broker that missed the others is told everything."""
    excess = len(table.deleted_topics) - DELETED_TOPICS_MAX
    if excess <= 0:
        return table
    by_age = sorted(table.deleted_topics.items(), key=lambda item: item[1])
    return dataclasses.replace(
        table,
        deleted_topics=dict(by_age[excess:]),
        deletions_since=max(table.deletions_since, by_age[excess - 1][1]),
    )
