"""What the cluster keeps in etcd: ten kinds of keys and their JSON values.

docs/internals/etcd-keys.md lists them.

Owns: the key layout and the codec of values. Unknown fields are ignored, so that an older
nameserver can read what a newer one wrote. Values are JSON because operators read them with
etcdctl; they are small and change rarely.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from aerobee.domain.broker_condition import BrokerCondition
from aerobee.nameserver.key_values import KeyValue
from aerobee.nameserver.stored_access import AccessKey, PolicyKey, QuotaKey, UserKey

NO_MASTER = -1
EPOCH_MAX = 2**53
"""Far below what the wire format can carry; JSON readers handle integers up to this exactly."""

T = TypeVar("T")


class Unreadable(ValueError):
    """A key or value that this version does not understand."""


@dataclass(frozen=True, slots=True, order=True)
class BrokerKey:
    """A broker's place in the cluster, whichever process fills it."""

    broker_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, order=True)
class DurableKey:
    """The key under which etcd records how far a broker's logs are known to reach; not part of the
    routes."""

    broker: BrokerKey


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A live broker process: the value of its leased key."""

    key: BrokerKey
    instance: str
    address: str
    outside_address: str = ""
    """Where clients outside the cluster's network reach it; empty: at `address`."""
    zone: str = ""
    """The zone of its machine; empty: unknown."""
    in_sync_min: int = 0
    """With fewer replicas in sync, its group takes no messages; 0: written by an older version."""
    log_kept_hours: int = 0
    """How long its log keeps messages; 0: unknown, or without an end."""
    store_host_ipv6: bool = False
    writable: bool = True
    incarnation: str = ""
    """Identifies its log: new whenever the log may have lost bytes."""
    predecessor: str = ""
    """The instance that used its folder before; it has ended."""
    log_epoch: int = 0
    log_end: int = 0
    """How far its log reached, by epoch and offset, when it registered."""
    is_incomplete: bool = False
    """Its log ended before what the log named by the in-sync set is known to have had."""
    resigned_epoch: int = 0
    """It was master in this epoch and acknowledges nothing under it any more; 0: none."""
    successor_id: int = -1
    """The replica it wishes for as successor; -1: none."""
    is_connected: bool = True
    """A nameserver has a stream of this process; False: the stream has ended and none has come."""
    stream: str = ""
    """The stream by which it was registered, named by the nameserver that has it."""
    topics_known: int | None = None
    """It knows all topic deletions up to this revision; None: written by an older version."""
    condition: BrokerCondition = BrokerCondition.WELL
    lease_ms: int = 0
    """How long its registration outlives its last heartbeat; 0: written by an older version."""
    revision: int = 0
    lease_id: int = 0


@dataclass(frozen=True, slots=True, order=True)
class InSyncReplica:
    """A member of the in-sync set, for as long as its log has lost nothing."""

    broker_id: int
    incarnation: str


class SetState(StrEnum):
    """The state that an operator has set for a replica set."""

    OPEN = "open"
    CLOSED = "closed"
    """It takes no new messages and is read to its end."""
    REMOVED = "removed"
    """It is no longer part of the cluster."""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """Who is master of a replica set, and under which epoch."""

    broker_name: str
    epoch: int = 0
    """0: there has been no master yet."""
    master_id: int = NO_MASTER
    master_instance: str = ""
    in_sync: tuple[InSyncReplica, ...] = ()
    """By broker id. Every acknowledged message is in the logs of all of these."""
    replicas: tuple[int, ...] = ()
    """Every broker id that has registered and was not removed, sorted."""
    unclean_epochs: tuple[int, ...] = ()
    """Epochs that began without an in-sync replica."""
    state: SetState = SetState.OPEN
    revision: int = 0


@dataclass(frozen=True, slots=True)
class DurableLog:
    """A log of that incarnation never ends before `end` again: this much was confirmed, and on its
    disk."""

    incarnation: str
    end: int
    told_by: str
    """The instance that reported it."""


@dataclass(frozen=True, slots=True)
class DurableLogs:
    """The logs that one replica has had: its current one, and others that may count as in sync."""

    logs: tuple[DurableLog, ...] = ()
    revision: int = 0


class QueueRun(NamedTuple):
    """Queues of one topic with consecutive ids on one replica set."""

    broker_name: str
    first: int
    queues: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    perm: int = 6
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    queues_by_broker: Mapping[str, int] = field(default_factory=dict)
    """Replica set -> number of queues; queue ids start at 0."""
    key_order: tuple[QueueRun, ...] = ()
    """The queues over which keys are spread, in order; empty: all, by replica set and id."""
    retired: Mapping[str, tuple[QueueRun, ...]] = field(default_factory=dict)
    """Replica sets on which the topic takes no new messages -> the successors of its queues there,
    in order; also those that it has left since."""
    revision: int = 0

    @property
    def queues(self) -> int:
        return sum(self.queues_by_broker.values())


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Records that a topic was deleted; kept even if one of that name is created again."""

    name: str
    at_ms: int
    """Unix ms; each deletion of a name is later than the one before."""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Identifies the history of etcd to which its revisions belong: an emptied etcd counts from 1
    again."""

    id: str


@dataclass(frozen=True, slots=True)
class Backup:
    """Records that something was backed up; written by the backup job."""

    at_ms: int
    """Unix ms."""


Stored = BrokerRecord | ReplicaSet | Topic | DurableLogs | TopicDeletion | History | Backup


class Keys:
    """The key layout of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.prefix = f"/aerobee/{cluster}/"
        self.history = f"{self.prefix}history"

    def broker(self, key: BrokerKey) -> str:
        return f"{self.brokers_of(key.broker_name)}{key.broker_id}"

    def brokers_of(self, broker_name: str) -> str:
        """The common prefix of the keys of a replica set's brokers."""
        return f"{self.prefix}brokers/{broker_name}/"

    def replica_set(self, broker_name: str) -> str:
        return f"{self.prefix}groups/{broker_name}"

    def topic(self, name: str) -> str:
        return f"{self.prefix}topics/{name}"

    def deletion(self, name: str) -> str:
        return f"{self.prefix}deleted/{name}"

    def durable(self, key: BrokerKey) -> str:
        return f"{self.durable_of(key.broker_name)}{key.broker_id}"

    def durable_of(self, broker_name: str) -> str:
        """The common prefix of the keys of a replica set's durable logs."""
        return f"{self.prefix}durable/{broker_name}/"

    def user(self, name: str) -> str:
        return f"{self.prefix}users/{name}"

    def policy(self, key: PolicyKey) -> str:
        return f"{self.prefix}policies/{key.user}/{key.policy_id}"

    def quota(self, key: QuotaKey) -> str:
        return f"{self.prefix}quotas/{key.path}"

    def parse(self, key: str) -> BrokerKey | DurableKey | AccessKey | tuple[str, str] | None:
        """What a key stands for: the broker, its durable logs, a user, policy or quota, or
        ("groups" | "topics" | "deleted" | "backups", name), or ("history", ""); None: none of them.
        """
        parts = key.removeprefix(self.prefix).split("/")
        match parts:
            case ["brokers", broker_name, broker_id] if broker_id.isdecimal():
                return BrokerKey(broker_name, int(broker_id))
            case ["durable", broker_name, broker_id] if broker_id.isdecimal():
                return DurableKey(BrokerKey(broker_name, int(broker_id)))
            case ["users", name] if name:
                return UserKey(name)
            case ["policies", user, policy_id] if user and policy_id:
                return PolicyKey(user, policy_id)
            case ["quotas", "default"]:
                return QuotaKey("default")
            case ["quotas", "user" | "group" as kind, name] if name:
                return QuotaKey(f"{kind}/{name}")
            case ["groups" | "topics" | "deleted" | "backups" as kind, name] if name:
                return kind, name
            case ["history"]:
                return "history", ""
        return None

    def decode(self, entry: KeyValue) -> Stored | None:
        """The value of a key; None for keys that are not ours.

        Raises:
            Unreadable: it is ours, and its value makes no sense.
        """
        match self.parse(entry.key):
            case BrokerKey() as key:
                return _read(entry, lambda document: _broker_from(key, document, entry))
            case DurableKey():
                return _read(entry, lambda document: _durable_from(document, entry))
            case ("groups", name):
                return _read(entry, lambda document: _replica_set_from(name, document, entry))
            case ("topics", name):
                return _read(entry, lambda document: _topic_from(name, document, entry))
            case ("deleted", name):
                return _read(entry, lambda document: _deletion_from(name, document, entry))
            case ("backups", _):
                return _read(entry, lambda document: Backup(_number(document["at"])))
            case ("history", _):
                return _read(entry, lambda document: History(str(document["id"])))
        return None


def encode_broker(record: BrokerRecord) -> bytes:
    return _encode(
        {
            "instance": record.instance,
            "address": record.address,
            "outsideAddress": record.outside_address,
            "zone": record.zone,
            "inSyncMin": record.in_sync_min,
            "logKeptHours": record.log_kept_hours,
            "storeHostIpv6": record.store_host_ipv6,
            "writable": record.writable,
            "incarnation": record.incarnation,
            "predecessor": record.predecessor,
            "logEpoch": record.log_epoch,
            "logEnd": record.log_end,
            "incomplete": record.is_incomplete,
            "resignedEpoch": record.resigned_epoch,
            "successorId": record.successor_id,
            "connected": record.is_connected,
            "stream": record.stream,
            "topicsKnown": record.topics_known,
            "leaseMs": record.lease_ms,
            "condition": record.condition.value,
        }
    )


def encode_replica_set(replica_set: ReplicaSet) -> bytes:
    return _encode(
        {
            "epoch": replica_set.epoch,
            "masterId": replica_set.master_id,
            "masterInstance": replica_set.master_instance,
            "inSync": [
                {"brokerId": name.broker_id, "incarnation": name.incarnation}
                for name in replica_set.in_sync
            ],
            "replicas": list(replica_set.replicas),
            "uncleanEpochs": list(replica_set.unclean_epochs),
            "state": replica_set.state.value,
        }
    )


def encode_topic(topic: Topic) -> bytes:
    document: dict[str, object] = {
        "perm": topic.perm,
        "order": topic.order,
        "attributes": dict(sorted(topic.attributes.items())),
        "queuesByBroker": dict(sorted(topic.queues_by_broker.items())),
    }
    if topic.retired:
        document["keyOrder"] = topic.key_order
        document["retired"] = dict(sorted(topic.retired.items()))
    return _encode(document)


def encode_deletion(deletion: TopicDeletion) -> bytes:
    return _encode({"at": deletion.at_ms})


def encode_history(history: History) -> bytes:
    return _encode({"id": history.id})


def encode_durable(durable: DurableLogs) -> bytes:
    return _encode(
        {
            "logs": [
                {"incarnation": log.incarnation, "end": log.end, "toldBy": log.told_by}
                for log in durable.logs
            ]
        }
    )


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _read(entry: KeyValue, convert: Callable[[Mapping[str, Any]], T]) -> T:
    try:
        document = json.loads(entry.value)
        if not isinstance(document, dict):
            raise TypeError("it is not a JSON object")
        return convert(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{entry.key}: {type(error).__name__}: {error}") from error


def _broker_from(key: BrokerKey, document: Mapping[str, Any], entry: KeyValue) -> BrokerRecord:
    return BrokerRecord(
        key,
        instance=str(document["instance"]),
        address=str(document["address"]),
        outside_address=str(document.get("outsideAddress", "")),
        zone=str(document.get("zone", "")),
        in_sync_min=_number(document.get("inSyncMin", 0)),
        log_kept_hours=_number(document.get("logKeptHours", 0)),
        store_host_ipv6=bool(document.get("storeHostIpv6", False)),
        writable=bool(document.get("writable", True)),
        incarnation=str(document.get("incarnation", "")),
        predecessor=str(document.get("predecessor", "")),
        log_epoch=_number(document.get("logEpoch", 0)),
        log_end=_number(document.get("logEnd", 0)),
        is_incomplete=document.get("incomplete") is True,
        resigned_epoch=_number(document.get("resignedEpoch", 0)),
        successor_id=_broker_id(document.get("successorId", -1)),
        is_connected=document.get("connected") is not False,
        stream=str(document.get("stream", "")),
        topics_known=None if (known := document.get("topicsKnown")) is None else _number(known),
        lease_ms=_number(document.get("leaseMs", 0)),
        condition=_condition(document.get("condition", "")),
        revision=entry.revision,
        lease_id=entry.lease_id,
    )


def _condition(value: object) -> BrokerCondition:
    """A newer version may have worded it differently; that counts as well."""
    return next((each for each in BrokerCondition if each.value == value), BrokerCondition.WELL)


def _replica_set_from(name: str, document: Mapping[str, Any], entry: KeyValue) -> ReplicaSet:
    """A record from before replication existed has neither an instance nor an in-sync set: it reads
    as a replica set whose master has gone and in which nothing was replicated."""
    in_sync = {
        InSyncReplica(_broker_id(member["brokerId"]), str(member["incarnation"]))
        for member in document.get("inSync", ())
    }
    if len({member.broker_id for member in in_sync}) != len(in_sync):
        raise ValueError("a replica is in the in-sync set twice")
    return ReplicaSet(
        name,
        epoch=_number(document["epoch"]),
        master_id=_broker_id(document["masterId"]),
        master_instance=str(document.get("masterInstance", "")),
        in_sync=tuple(sorted(in_sync)),
        replicas=tuple(sorted({_broker_id(one) for one in document.get("replicas", ())})),
        unclean_epochs=tuple(_number(epoch) for epoch in document.get("uncleanEpochs", ())),
        state=SetState(document.get("state", SetState.OPEN)),
        revision=entry.revision,
    )


def _durable_from(document: Mapping[str, Any], entry: KeyValue) -> DurableLogs:
    logs = tuple(
        DurableLog(str(log["incarnation"]), _number(log["end"]), str(log.get("toldBy", "")))
        for log in document["logs"]
    )
    return DurableLogs(logs, entry.revision)


def _deletion_from(name: str, document: Mapping[str, Any], entry: KeyValue) -> TopicDeletion:
    return TopicDeletion(name, _number(document["at"]), entry.revision)


def _number(value: Any) -> int:
    """An epoch, a log position, or a time."""
    number = int(value)
    if not 0 <= number <= EPOCH_MAX:
        raise ValueError(f"{number} is not an epoch, a log position or a time")
    return number


def _broker_id(value: Any) -> int:
    """A broker's id, or -1 for none."""
    broker_id = int(value)
    if not -1 <= broker_id < 2**31:
        raise ValueError(f"{broker_id} is not a broker id")
    return broker_id


def _topic_from(name: str, document: Mapping[str, Any], entry: KeyValue) -> Topic:
    queues = {
        str(replica_set): int(count) for replica_set, count in document["queuesByBroker"].items()
    }
    if any(count < 0 for count in queues.values()):
        raise ValueError("a queue count is negative")
    return Topic(
        name,
        perm=int(document["perm"]),
        order=bool(document.get("order", False)),
        attributes={str(k): str(v) for k, v in document.get("attributes", {}).items()},
        queues_by_broker=queues,
        key_order=_queue_runs(document.get("keyOrder", ())),
        retired={
            str(replica_set): _queue_runs(successors)
            for replica_set, successors in document.get("retired", {}).items()
        },
        revision=entry.revision,
    )


def _queue_runs(value: Any) -> tuple[QueueRun, ...]:
    return tuple(
        QueueRun(str(replica_set), _number(first), _number(queues))
        for replica_set, first, queues in value
    )
