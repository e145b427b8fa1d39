"""Which remoting clients are connected, as producers and as members of groups.

Owns: their connections by group and by client id, the subscriptions of members, and telling members
that they must divide the queues again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.access.meter import CURRENT_METER, Meter
from aerobee.access.running import sends_now
from aerobee.broker.edge.remoting.teller import Teller, ToTell
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.self_assigned import SelfAssigned, SelfMember
from aerobee.broker.retries.topics import RetryTopics
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.domain.tag_expression import parse_tags
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.codes import Ask, Code
from aerobee.rocketmq_remoting.heartbeats import Consuming, HeartBeat, Subscribed, read_heartbeat
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

MaySend = Callable[[str], bool]
"""Whether the user of a connection may send to a topic now."""
_PRODUCERS_TRIED: Final = 16
_LANGUAGE_LENGTH_MAX: Final = 20
PRODUCERS_MAX: Final = 100_000
"""Connections of producer groups; further ones are not noted."""


def newest(
    before: Mapping[str, Subscribed], told: Mapping[str, Subscribed]
) -> Mapping[str, Subscribed]:
    """The topics that a member has told now, each by its newest subscription."""
    kept = {
        topic: known
        for topic, known in before.items()
        if topic in told and known.version > told[topic].version
    }
    return {**told, **kept} if kept else told


@dataclass(slots=True, eq=False)
class Producing:
    """A connected client as a producer."""

    client_id: str
    language: str
    version: int
    heard_s: float
    """In monotonic seconds."""
    groups: set[str] = field(default_factory=set)


class RemotingClients:
    """On the loop."""

    def __init__(
        self,
        members: SelfAssigned[Subscribed],
        known: KnownGroups,
        topics: RetryTopics,
        expressions: CompiledExpressions,
        clock: Clock,
        *,
        is_master: Callable[[], bool],
    ) -> None:
        """A slave knows members, too, for when it is master, but its tables are its master's."""
        self.members = members
        self._known = known
        self._topics = topics
        self._expressions = expressions
        self._clock = clock
        self._is_master = is_master
        self._producers: dict[str, OrderedDict[Connection, MaySend]] = {}
        """By group; the one to ask next is first."""
        self._producing: dict[Connection, Producing] = {}
        self._by_id: dict[str, Connection] = {}
        """Producers by client id."""
        self._meters: dict[Connection, Meter] = {}
        """Which account pays for a connection's subscriptions."""
        self._changed: dict[str, None] = {}
        """Groups whose members are to be told so."""
        self._teller = Teller(lambda: bool(self._changed), self._to_tell)

    def disconnected(self, connection: Connection) -> None:
        known = self._producing.pop(connection, None)
        if known is not None:
            for group in known.groups:
                self._forget_producer(group, connection)
            if self._by_id.get(known.client_id) is connection:
                del self._by_id[known.client_id]
        meter = self._meters.pop(connection, None)
        if meter is not None:
            meter.hold_subscriptions(0)
        self.tell_changed(self.members.disconnected(connection))

    def expire(self) -> None:
        """Members that were silent for too long are gone; called from time to time."""
        self.tell_changed(self.members.expire(self._clock.monotonic_s()))

    # ------------------------------------------------------------------------------ requests

    async def heart_beat(self, connection: Connection, request: Command) -> Command:
        """Code 34. Raises InvalidArgument, QuotaExceeded."""
        told = read_heartbeat(request.body)
        if told.producers:
            self._produces(told, connection, request)
        if not told.lacks_subscriptions:
            self._hold_subscriptions(connection, told)
        changed, has_new = set(), False
        for consuming in told.consumers:
            wants = consuming.subscriptions
            if told.lacks_subscriptions:
                before = self._known_as(consuming.group, connection, told.client_id)
                if before is None:
                    has_new = True
                    continue
                wants = before.wants
            language = request.language[:_LANGUAGE_LENGTH_MAX]
            member = SelfMember(
                told.client_id,
                connection,
                consuming.is_broadcasting,
                wants,
                title=f"remoting client, {language}",
                facts=(language, request.version, consuming.is_passive, consuming.beginning),
            )
            if await self._joins(connection, consuming, member):
                changed.add(consuming.group)
        self.tell_changed(changed)
        fields = {
            "IS_SUPPORT_HEART_BEAT_V2": "true",
            "IS_SUB_CHANGE": "true" if changed or has_new else "false",
        }
        return request.answer(fields=fields)

    async def _joins(
        self,
        connection: Connection,
        consuming: Consuming,
        member: SelfMember[Subscribed],
    ) -> bool:
        """Whether the group's members must divide its queues again. A group that may not begin is
        passed over, as by Apache's brokers: the client would drop the whole heart-beat."""
        try:
            if self._is_master():
                self._known.admit(consuming.group)
                if not consuming.is_broadcasting:
                    await self._topics.make(consuming.group)
            texts = [each.expression for each in consuming.subscriptions.values() if each.is_sql]
            await self._expressions.prepared(texts, consuming.group)
            if not connection.is_open:
                return False
            # Heart-beats of one client may overtake each other while they wait.
            before = self.members.of_connection(consuming.group, connection)
            if before is not None:
                member.wants = newest(before.wants, member.wants)
            return self.members.heard(consuming.group, member, self._clock.monotonic_s())
        except AerobeeError:
            return False

    def _known_as(
        self, group: str, connection: Connection, client_id: str
    ) -> SelfMember[Subscribed] | None:
        """The member that a connection is, or that its client was by a former one."""
        own = self.members.of_connection(group, connection)
        return own or self.members.member(group, client_id)

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Code 35. Raises InvalidArgument."""
        client_id = read.text(request.fields, "clientID")
        group = request.fields.get("producerGroup", "")
        known = self._producing.get(connection)
        if known is not None and group in known.groups:
            known.groups.discard(group)
            self._forget_producer(group, connection)
        group = request.fields.get("consumerGroup", "")
        if group and self.members.left(group, client_id, connection):
            self.tell_changed([group])
        return request.answer()

    def list_members(self, connection: Connection, request: Command) -> Command:
        """Code 38. Raises InvalidArgument."""
        group = read.text(request.fields, "consumerGroup")
        ids = self.members.client_ids(group)
        if not ids:
            return request.answer(Code.SYSTEM_ERROR, remark=f"no consumer for this group, {group}")
        return request.answer(body=json_bodies.write({"consumerIdList": ids}))

    def check_config(self, connection: Connection, request: Command) -> Command:
        """Code 46. Raises FilterIllegal, InvalidArgument."""
        found = json_bodies.read_object(request.body).get("subscriptionData")
        if isinstance(found, dict):
            is_sql = found.get("expressionType") == "SQL92"
            self.wish_of(Subscribed("", str(found.get("subString") or "*"), is_sql))
        return request.answer()

    def divide_again(self, group: str) -> None:
        """Tell the members of a group to divide its queues now, not at their next turn."""
        self.tell_changed([group])

    # ------------------------------------------------------------------------------ asking

    def subscribed(self, group: str, topic: str) -> Subscribed | None:
        """What a group wants of a topic, by its newest subscription; None: no member wants any."""
        wishes = self.members.wishes(group, topic)
        return max(wishes, key=lambda wish: wish.version, default=None)

    def wish_of(self, subscribed: Subscribed) -> Wish:
        """Raises FilterIllegal."""
        if subscribed.is_sql:
            return self._expressions.of(subscribed.expression)
        return parse_tags(subscribed.expression)

    def producer(self, group: str, topic: str) -> Connection | None:
        """A connection of a producer group whose user may send to the topic, another one each time.
        Of many that may not, some are tried."""
        connections = self._producers.get(group)
        for _ in range(min(len(connections or ()), _PRODUCERS_TRIED)):
            assert connections is not None
            connection, may_send = next(iter(connections.items()))
            connections.move_to_end(connection)
            if may_send(topic):
                return connection
        return None

    def producer_with_id(self, client_id: str) -> Connection | None:
        """The connection of a producer; of several with one id, the one that came last."""
        return self._by_id.get(client_id)

    def producers_of(self, group: str) -> list[tuple[Connection, Producing]]:
        return [(each, self._producing[each]) for each in self._producers.get(group, ())]

    def all_producing(self) -> list[tuple[str, Producing]]:
        """With their addresses."""
        return [(connection.peer, each) for connection, each in self._producing.items()]

    def producer_groups(self) -> list[str]:
        """Those that have connections here, sorted."""
        return sorted(self._producers)

    def _produces(self, told: HeartBeat, connection: Connection, request: Command) -> None:
        known = self._producing.get(connection)
        if known is None:
            if len(self._producing) >= PRODUCERS_MAX:
                return
            language = request.language[:_LANGUAGE_LENGTH_MAX]
            known = Producing(told.client_id, language, request.version, 0.0)
            self._producing[connection] = known
            self._by_id[known.client_id] = connection
        # Another connection with this id may have been the last one, and ended.
        self._by_id.setdefault(known.client_id, connection)
        known.heard_s = self._clock.monotonic_s()
        for group in told.producers:
            self._producers.setdefault(group, OrderedDict())[connection] = sends_now()
            known.groups.add(group)

    def _forget_producer(self, group: str, connection: Connection) -> None:
        connections = self._producers[group]
        del connections[connection]
        if not connections:
            del self._producers[group]

    def _hold_subscriptions(self, connection: Connection, told: HeartBeat) -> None:
        """Those to retry topics are no choice of the client's. Raises QuotaExceeded."""
        meter = CURRENT_METER.get()
        held = self._meters.get(connection)
        if held is None and meter is None:
            return
        count = sum(
            not topic.startswith(RETRY_PREFIX)
            for each in told.consumers
            for topic in each.subscriptions
        )
        if held is not None and (meter is None or not held.is_of(meter)):
            held.hold_subscriptions(0)  # another user has the connection now
            del self._meters[connection]
            held = None
        paying = held or meter
        if paying is not None:
            paying.hold_subscriptions(count)
            self._meters[connection] = paying

    def tell_changed(self, groups: Iterable[str]) -> None:
        """Code 40, soon, to all members that are connected here. One heart-beat may change many
        groups of many members."""
        self._changed.update(dict.fromkeys(groups))
        self._teller.soon()

    def _to_tell(self) -> ToTell:
        """What has changed so far, once each."""
        changed, self._changed = self._changed, {}
        for group in changed:
            said = Command(Ask.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            for member in self.members.members(group):
                if isinstance(member.connection, Connection):
                    yield member.connection, said
