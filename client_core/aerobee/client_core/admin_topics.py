"""Topics, as `AdminClient.topics` shows and changes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from aerobee.client_core.audit import Audit
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import AnswerList, Masters, ask_masters
from aerobee.client_core.schemas import SCHEMA, SchemaIncompatible, conflicts, shown, stored
from aerobee.cluster_view.methods import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    LIST_TOPICS,
    REMOVE_RETIRED,
    SPREAD_TOPIC,
    UPDATE_TOPIC,
)
from aerobee.cluster_view.route import PERM_READ, PERM_WRITE, Endpoint, MessageQueue
from aerobee.domain.names import check_topic_name
from aerobee.domain.topic_attributes import KEEP_BYTES, KEEP_MS
from aerobee.runtime.errors import (
    InvalidArgument,
    NoBrokerAvailable,
    TopicExists,
    TopicNotFound,
)
from aerobee.v1 import audit_pb2, common_pb2, nameserver_pb2

Permission = Literal["rw", "r", "w"]
"""What clients may do with a topic: read, write."""

_NAMED_MAX: Final = 5
_MASKS: Final[Mapping[str, int]] = {
    "rw": PERM_READ | PERM_WRITE,
    "r": PERM_READ,
    "w": PERM_WRITE,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    queues_by_broker: Mapping[str, int]
    """The topic's number of queues on each broker group."""
    permission: Permission | Literal[""]
    """Empty: clients may do nothing with it."""
    ordered: bool
    """Intended for ordered messages."""
    attributes: Mapping[str, str]
    revision: int = field(default=0, compare=False)
    """Of its last change in etcd; 0: brokers created the topic themselves."""
    retired: tuple[str, ...] = ()
    """Broker groups on which it takes no new messages and is read to its end."""

    @property
    def queues(self) -> int:
        """Over all broker groups."""
        return sum(self.queues_by_broker.values())


@dataclass(frozen=True, slots=True)
class TopicSpread:
    """What spreading a topic changes."""

    before: Topic
    after: Topic


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue, and where it is now."""

    queue: MessageQueue
    address: str | None
    """Of its broker group's master; None: it has none now."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, as its clients see it."""

    name: str
    permission: Permission | Literal[""]
    ordered: bool
    attributes: Mapping[str, str]
    queues: tuple[TopicQueue, ...]
    """In ascending order."""
    retired: tuple[str, ...] = ()
    """Broker groups on which it takes no new messages and is read to its end."""


class TopicAdmin:
    """Topics: create, list, show, change, delete. Every call may raise RegistryUnavailable,
    Unreachable, DeadlineExceeded and AccessDenied."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._audit = Audit(connection.channels, timeout_ms=timeout_ms)
        self._nameservers = connection.nameservers
        self._cluster = connection.cluster
        self._routes = connection.routes
        self._timeout_ms = timeout_ms

    async def create(
        self,
        name: str,
        *,
        queues: int | None = None,
        permission: Permission = "rw",
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        keep_ms: int | None = None,
        keep_bytes: int | None = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Create a topic; `queues` is the total, by default what the cluster's policy says.

        Args:
            keep_ms: how long it keeps its messages; by default, as long as the brokers' log.
            keep_bytes: the most bytes that each of its queues keeps.
            exist_ok: a topic that is there already is returned as it is, whatever its queues and
                attributes.

        Raises:
            TopicExists, IllegalName, LimitReached, NoBrokerAvailable.
            InvalidArgument: an attribute, or `keep_ms` is longer than a broker keeps its log.
        """
        check_topic_name(name)
        request = nameserver_pb2.CreateTopicRequest(
            cluster=self._cluster,
            name=name,
            queues=queues or 0,
            perm=_mask(permission),
            order=ordered,
            attributes=_with_kept(attributes, keep_ms, keep_bytes),
        )
        try:
            made = await self._nameservers.call(CREATE_TOPIC, request, timeout_ms=self._timeout_ms)
        except TopicExists:
            if not exist_ok:
                raise
            return await self.get(name)
        return _topic(made)

    async def update(
        self,
        name: str,
        *,
        queues: int | None = None,
        permission: Permission | None = None,
        ordered: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        keep_ms: int | None = None,
        keep_bytes: int | None = None,
    ) -> Topic:
        """Change what is given; an attribute with an empty value is removed.

        Args:
            keep_ms: how long it keeps its messages; 0: as long as the brokers' log. What it no
                longer keeps is gone, even if it keeps more again later.
            keep_bytes: the most bytes that each of its queues keeps; 0: no limit.

        Raises:
            TopicNotFound, IllegalName; InvalidArgument: fewer queues than before, an attribute, or
            `keep_ms` is longer than a broker keeps its log.
        """
        check_topic_name(name)
        request = nameserver_pb2.UpdateTopicRequest(
            cluster=self._cluster,
            name=name,
            queues=queues,
            perm=None if permission is None else _mask(permission),
            order=ordered,
            attributes=_with_kept(attributes, keep_ms, keep_bytes),
        )
        return _topic(
            await self._nameservers.call(UPDATE_TOPIC, request, timeout_ms=self._timeout_ms)
        )

    async def schema(self, name: str) -> str:
        """The schema of a topic's bodies, as JSON; empty: it has none. Raises TopicNotFound,
        InvalidArgument: something else wrote it."""
        return shown((await self.get(name)).attributes.get(SCHEMA, ""))

    async def set_schema(self, name: str, schema: str, *, force: bool = False) -> Sequence[str]:
        """Give a topic the schema of its bodies, such as `TypedTopic.schema()`; empty: it has none.

        The schema may be changed if readers and writers of both understand each other. Brokers do
        not look at bodies: it is a statement for the topic's producers and consumers.

        Args:
            force: change it whatever is incompatible.

        Returns:
            What is incompatible and was forced.

        Raises:
            TopicNotFound, IllegalName; InvalidArgument: it is no schema, or has more than about 3
            KiB.
            SchemaIncompatible: nothing was changed.
        """
        before = await self.schema(name)
        found = conflicts(before, schema) if before and schema else []
        if found and not force:
            raise SchemaIncompatible(
                f"the schema of topic {name!r} is not changed: {'; '.join(found[:_NAMED_MAX])}"
            )
        await self.update(name, attributes={SCHEMA: stored(schema) if schema else ""})
        return found

    async def spread(
        self, name: str, *, retire: Sequence[str] = (), preview: bool = False
    ) -> TopicSpread:
        """Let the topic use all broker groups, or leave some. Messages do not move.

        Without `retire`, groups with fewer queues than others get new ones. Keys are then spread
        over more queues: some move, once, and newer messages of such a key may be handled before
        older ones.

        Args:
            retire: broker groups on which the topic takes no new messages from now on. Each of its
                queues there gets a successor, a new queue elsewhere that takes over its keys; no
                other key moves. Consumers read the old queues to their end. In a topic that is
                ordered or of type FIFO, a group begins with a successor once it has finished the
                old queue. Then `remove_retired`.
            preview: change nothing.

        Raises:
            TopicNotFound, IllegalName, NoBrokerAvailable, LimitReached; InvalidArgument: it has no
            queues on a group to retire it from.
        """
        check_topic_name(name)
        request = nameserver_pb2.SpreadTopicRequest(
            cluster=self._cluster, name=name, retire=retire, preview=preview
        )
        done = await self._nameservers.call(SPREAD_TOPIC, request, timeout_ms=self._timeout_ms)
        return TopicSpread(_topic(done.before), _topic(done.after))

    async def remove_retired(self, name: str, broker_name: str) -> Topic:
        """Take the topic's queues on a broker group that it is retired from out of it, whatever
        they hold: see `BrokerGroups.remaining`. The topic gets no queues there again.

        Raises:
            TopicNotFound, IllegalName; InvalidArgument: it is not retired from there.
        """
        check_topic_name(name)
        request = nameserver_pb2.RemoveRetiredRequest(
            cluster=self._cluster, name=name, broker_name=broker_name
        )
        return _topic(
            await self._nameservers.call(REMOVE_RETIRED, request, timeout_ms=self._timeout_ms)
        )

    async def delete(self, name: str) -> None:
        """Delete a topic with its messages and all groups' offsets on it. Raises TopicNotFound."""
        check_topic_name(name)
        request = nameserver_pb2.DeleteTopicRequest(cluster=self._cluster, name=name)
        await self._nameservers.call(DELETE_TOPIC, request, timeout_ms=self._timeout_ms)
        self._routes.invalidate(name)

    async def get(self, name: str) -> Topic:
        """One topic. Raises TopicNotFound; NoBrokerAvailable: a broker that does not answer may
        have it."""
        listed = await self.list(with_own=True)
        found = next((each for each in listed if each.name == name), None)
        if found is None and listed.unanswered:
            raise NoBrokerAvailable(
                f"no broker that answers has topic {name!r}, and {', '.join(listed.unanswered)} "
                "does not answer: see `aerobee cluster show`"
            )
        if found is None:
            raise TopicNotFound(f"there is no topic {name!r}; create it, or check the spelling")
        return found

    async def list(self, *, with_own: bool = False) -> AnswerList[Topic]:
        """All topics, by name; `with_own` includes those that brokers created themselves: for
        groups' failed messages and dead letters, and for the system. `unanswered`: the broker
        groups whose own topics are missing. Raises NoBrokerAvailable: no broker answers."""
        response = await self._nameservers.call(
            LIST_TOPICS,
            nameserver_pb2.ListTopicsRequest(cluster=self._cluster),
            timeout_ms=self._timeout_ms,
        )
        topics = {topic.name: topic for topic in response.topics}
        unanswered: Sequence[str] = ()
        if with_own:
            made, unanswered = await self._made_by_brokers(topics.keys())
            topics |= made
        return AnswerList([_topic(topics[name]) for name in sorted(topics)], unanswered)

    async def describe(self, name: str) -> TopicDescription:
        """A topic's queues and where they are. Raises TopicNotFound."""
        route = await self._routes.route(name, timeout_ms=self._timeout_ms)
        masters = {broker: master.address for broker, master in route.masters.items()}
        return TopicDescription(
            name=name,
            permission=_permission(route.perm),
            ordered=route.is_ordered,
            attributes=dict(route.attributes),
            queues=tuple(
                TopicQueue(queue, masters.get(queue.broker_name)) for queue in route.queues
            ),
            retired=tuple(sorted({queue.broker_name for queue in route.successors})),
        )

    async def _made_by_brokers(
        self, kept: Collection[str]
    ) -> tuple[dict[str, common_pb2.TopicConfig], Sequence[str]]:
        """Topics of the masters' own tables, by name, without those that nameservers keep; and the
        broker groups that did not answer."""
        answers, unanswered = await ask_masters(await self._masters.roll_call(), self._rows_of)
        topics = dict[str, common_pb2.TopicConfig]()
        for broker_name, parts in answers.items():
            for rows in parts:
                columns = (rows.topics, rows.read_queue_counts, rows.write_queue_counts, rows.perms)
                for name, reads, writes, perm in zip(*columns, strict=True):
                    if name in kept:
                        continue
                    topic = topics.setdefault(name, common_pb2.TopicConfig(name=name, perm=perm))
                    topic.queues_by_broker[broker_name] = max(reads, writes)
        return topics, unanswered

    async def _rows_of(self, master: Endpoint) -> Sequence[audit_pb2.TopicRows]:
        wanted = audit_pb2.SnapshotRequest(tables=[audit_pb2.SNAPSHOT_TOPICS])
        return [
            part.topics
            async for part in self._audit.snapshot(master.address, wanted)
            if part.HasField("topics")
        ]


def _with_kept(
    attributes: Mapping[str, str] | None, keep_ms: int | None, keep_bytes: int | None
) -> dict[str, str]:
    kept = {KEEP_MS: keep_ms, KEEP_BYTES: keep_bytes}
    given = {name: str(value or "") for name, value in kept.items() if value is not None}
    return {**(attributes or {}), **given}


def _mask(permission: str) -> int:
    if permission not in _MASKS:
        raise InvalidArgument(f"permission must be one of {', '.join(_MASKS)}, not {permission!r}")
    return _MASKS[permission]


def _permission(perm: int) -> Permission | Literal[""]:
    mask = perm & (PERM_READ | PERM_WRITE)
    if mask == PERM_READ | PERM_WRITE:
        return "rw"
    return "r" if mask == PERM_READ else "w" if mask == PERM_WRITE else ""


def _topic(config: common_pb2.TopicConfig) -> Topic:
    return Topic(
        name=config.name,
        queues_by_broker=dict(sorted(config.queues_by_broker.items())),
        permission=_permission(config.perm),
        ordered=config.order,
        attributes=dict(config.attributes),
        revision=config.revision,
        retired=tuple(
            sorted(
                each.broker_name
                for each in config.retired
                if each.broker_name in config.queues_by_broker
            )
        ),
    )
