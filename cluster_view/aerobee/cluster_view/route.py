"""What a route says: a topic's queues and where their brokers are. Pure values.

A TopicRoute is an immutable snapshot; a change makes a new one, so `is` tells whether values
derived from it are still valid. A broker group is one master, or none while one is being elected,
and its slaves. Every election begins a higher epoch: of two answers about a group, the one with the
higher epoch is newer, whichever nameserver gave it and whenever it arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aerobee.domain.topic_attributes import keeps_order
from aerobee.runtime import errors
from aerobee.v1 import common_pb2, nameserver_pb2

PERM_READ = 4
PERM_WRITE = 2


class MessageQueue(NamedTuple):
    """A queue's name, unique in the cluster; sorts by topic, broker name, queue id.

    >>> sorted([MessageQueue("t", "b", 1), MessageQueue("t", "a", 2)])[0].broker_name
    'a'
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One broker process as clients reach it."""

    broker_name: str
    broker_id: int
    address: str
    is_master: bool
    epoch: int = 0
    store_host_ipv6: bool = False
    writable: bool = True
    outside_address: str = ""
    """Where clients outside the cluster's network reach it, if nodes are to advertise that; empty:
    at `address`."""

    @classmethod
    def from_proto(cls, endpoint: nameserver_pb2.BrokerEndpoint) -> Endpoint:
        return cls(
            broker_name=endpoint.identity.broker_name,
            broker_id=endpoint.identity.broker_id,
            address=endpoint.address,
            is_master=endpoint.role == common_pb2.MASTER,
            epoch=endpoint.epoch,
            store_host_ipv6=endpoint.store_host_ipv6,
            writable=endpoint.writable,
            outside_address=endpoint.outside_address,
        )

    def told_outside(self) -> str:
        """The address for callers of an outside listener."""
        return self.outside_address or self.address


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's configuration and its live brokers, as one nameserver saw them."""

    topic: str
    perm: int
    is_ordered: bool
    attributes: Mapping[str, str]
    queues_by_broker: Mapping[str, int]
    """Number of queues on each broker group, by broker name in ascending order."""
    endpoints: tuple[Endpoint, ...]
    """Masters and slaves, by broker name and broker id."""
    closed: frozenset[str] = frozenset()
    """Broker groups that take no new messages while their queues are read to the end: those that
    are closed, and those that the topic is retired from."""
    key_order: tuple[MessageQueue, ...] = ()
    """The queues over which keys are spread, in order; empty: `queues`."""
    successors: Mapping[MessageQueue, MessageQueue] = field(default_factory=dict)
    """Of each retired queue that the topic still has: the queue that has taken over its keys."""
    deleted_at_ms: int = 0
    """When a topic of this name was deleted last, Unix ms; 0: never, as far as nameservers know. A
    later one than before means another topic, whose queues start at offset 0."""
    masters: Mapping[str, Endpoint] = field(init=False, compare=False)
    """The live master of each broker name; absent while there is none."""

    def __post_init__(self) -> None:
        masters: dict[str, Endpoint] = {}
        epochs: dict[str, int] = {}
        for endpoint in self.endpoints:
            name = endpoint.broker_name
            epochs[name] = max(endpoint.epoch, epochs.get(name, 0))
        for endpoint in self.endpoints:
            # A master under an older epoch than the newest one known here is no longer master.
            if endpoint.is_master and endpoint.epoch == epochs[endpoint.broker_name]:
                masters.setdefault(endpoint.broker_name, endpoint)
        object.__setattr__(self, "masters", masters)

    @classmethod
    def from_proto(cls, route: nameserver_pb2.TopicRoute) -> TopicRoute:
        topic = route.topic
        endpoints = [Endpoint.from_proto(endpoint) for endpoint in route.brokers]
        return cls(
            topic=topic.name,
            perm=topic.perm,
            is_ordered=topic.order,
            attributes=dict(topic.attributes),
            queues_by_broker=dict(sorted(topic.queues_by_broker.items())),
            endpoints=tuple(sorted(endpoints, key=lambda end: (end.broker_name, end.broker_id))),
            closed=frozenset(route.closed),
            key_order=_queues_of(topic.name, topic.key_order),
            successors={
                MessageQueue(topic.name, retired.broker_name, queue_id): successor
                for retired in topic.retired
                if retired.broker_name in topic.queues_by_broker
                for queue_id, successor in enumerate(_queues_of(topic.name, retired.successors))
            },
            deleted_at_ms=topic.deleted_at,
        )

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """All queues in ascending order, whether their brokers are alive or not."""
        return tuple(
            MessageQueue(self.topic, broker_name, queue_id)
            for broker_name, count in self.queues_by_broker.items()
            for queue_id in range(count)
        )

    @property
    def open_queues(self) -> tuple[MessageQueue, ...]:
        """What keys are spread over: `key_order` without queues of closed broker groups."""
        queues = self.key_order or self.queues
        return tuple(queue for queue in queues if queue.broker_name not in self.closed)

    @property
    def keeps_order(self) -> bool:
        """Whether a queue is to be read only after the retired queue whose keys it took over."""
        return keeps_order(self.attributes, is_ordered=self.is_ordered)

    @property
    def readable_queues(self) -> tuple[MessageQueue, ...]:
        """`queues`, or none if the topic's permission forbids reading."""
        return self.queues if self.perm & PERM_READ else ()

    @property
    def writable_queues(self) -> tuple[MessageQueue, ...]:
        """Queues whose master is alive and takes writes now, if the permission allows sending."""
        if not self.perm & PERM_WRITE:
            return ()
        return tuple(queue for queue in self.open_queues if self.takes_writes(queue.broker_name))

    def master(self, broker_name: str) -> Endpoint | None:
        """The live master of a broker group."""
        return self.masters.get(broker_name)

    def slaves(self, broker_name: str) -> tuple[Endpoint, ...]:
        """The live slaves of a broker group, by broker id."""
        master = self.masters.get(broker_name)
        return tuple(endpoint for endpoint in self.replicas(broker_name) if endpoint is not master)

    def replicas(self, broker_name: str) -> tuple[Endpoint, ...]:
        """All live brokers of a group, by broker id."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.broker_name == broker_name)

    def epoch(self, broker_name: str) -> int:
        """The newest epoch shown for a live broker of the group; 0 if there is none."""
        return max((endpoint.epoch for endpoint in self.replicas(broker_name)), default=0)

    def master_address(self, broker_name: str) -> str:
        """host:port of a broker group's master.

        Raises:
            NoBrokerAvailable: the group has no live master now.
        """
        endpoint = self.masters.get(broker_name)
        if endpoint is None:
            raise errors.NoBrokerAvailable(
                f"broker {broker_name!r} of topic {self.topic!r} has no live master now: retry, "
                "or see `aerobee cluster show`"
            )
        return endpoint.address

    def takes_writes(self, broker_name: str) -> bool:
        """Whether the broker group is open and its live master has room."""
        endpoint = self.masters.get(broker_name)
        return endpoint is not None and endpoint.writable and broker_name not in self.closed


def _queues_of(topic: str, runs: Iterable[common_pb2.QueueRun]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, run.broker_name, run.first + n)
        for run in runs
        for n in range(run.count)
    )


class NewestEpochs:
    """The brokers of each group under the newest known epoch.

    Nameservers that watch the same etcd may lag behind each other. No route that was passed on here
    shows a group under an older epoch than one passed on before.
    """

    def __init__(self) -> None:
        self._endpoints: dict[str, tuple[int, tuple[Endpoint, ...]]] = {}

    def pass_on(self, route: TopicRoute) -> TopicRoute:
        """The route, with groups of older epochs replaced by what is known of them. A group without
        a live replica has no epoch and is passed on as it is."""
        outdated: set[str] = set()
        for name in route.queues_by_broker:
            epoch = route.epoch(name)
            known_epoch, _ = self._endpoints.get(name, (0, ()))
            if 0 < epoch < known_epoch:
                outdated.add(name)
            elif epoch:
                self._endpoints[name] = epoch, route.replicas(name)
        if not outdated:
            return route
        endpoints = [each for each in route.endpoints if each.broker_name not in outdated]
        for name in outdated:
            endpoints += self._endpoints[name][1]
        return replace(
            route,
            endpoints=tuple(sorted(endpoints, key=lambda end: (end.broker_name, end.broker_id))),
        )
