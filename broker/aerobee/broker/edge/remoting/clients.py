"""Which remoting clients are connected, as producers and as members of groups.

Owns: their connections by group, the subscriptions of members, and telling members that they must
divide the queues again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aerobee.access.running import sends_now
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import SelfAssigned, SelfMember
from aerobee.broker.retries.topics import RetryTopics
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.domain.tag_expression import parse_tags
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.codes import Ask, Code
from aerobee.rocketmq_remoting.heartbeats import Consuming, Subscribed, read_heartbeat
from aerobee.rocketmq_remoting.queues import queue_object, read_queues
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError

MaySend = Callable[[str], bool]
"""Whether the user of a connection may send to a topic now."""
_PRODUCERS_TRIED: Final = 16
_LANGUAGE_LENGTH_MAX: Final = 20
TOLD_AFTER_S: Final = 0.02
"""Clients that start together change a group once."""
TOLD_PER_TURN: Final = 128
PRODUCERS_MAX: Final = 100_000
"""Connections of producer groups; the ones heard longest ago are forgotten."""


class RemotingClients:
    """On the loop."""

    def __init__(
        self,
        broker_name: str,
        members: SelfAssigned[Subscribed],
        known: KnownGroups,
        topics: RetryTopics,
        expressions: CompiledExpressions,
        clock: Clock,
        *,
        check_master: Callable[[], None],
        is_master: Callable[[], bool],
    ) -> None:
        """`check_master` raises NotMaster. A slave knows members, too, for when it is master, but
        its tables are its master's."""
        self._broker_name = broker_name
        self.members = members
        self._known = known
        self._topics = topics
        self._expressions = expressions
        self._clock = clock
        self._check_master = check_master
        self._is_master = is_master
        self._producers: dict[str, OrderedDict[Connection, MaySend]] = {}
        """By group; the one to ask next is first."""
        self._producing: dict[Connection, set[str]] = {}
        self._changed: dict[str, None] = {}
        """Groups whose members are to be told so."""
        self._is_telling = False

    def disconnected(self, connection: Connection) -> None:
        for group in self._producing.pop(connection, ()):
            connections = self._producers[group]
            del connections[connection]
            if not connections:
                del self._producers[group]
        self._tell_changed(self.members.disconnected(connection))

    def expire(self) -> None:
        """Members that were silent for too long are gone; called from time to time."""
        self._tell_changed(self.members.expire(self._clock.monotonic_s()))

    # ------------------------------------------------------------------------------ requests

    async def heart_beat(self, connection: Connection, request: Command) -> Command:
        """Code 34. Raises InvalidArgument."""
        told = read_heartbeat(request.body)
        for group in told.producers:
            self._produces(group, connection)
        changed, has_new = set(), False
        for consuming in told.consumers:
            wants = consuming.subscriptions
            if told.lacks_subscriptions:
                before = self.members.member(consuming.group, told.client_id)
                if before is None:
                    has_new = True
                    continue
                wants = before.wants
            title = f"remoting client, {request.language[:_LANGUAGE_LENGTH_MAX]}"
            member = SelfMember(
                told.client_id, connection, consuming.is_broadcasting, wants, title=title
            )
            if await self._joins(connection, consuming, member):
                changed.add(consuming.group)
        self._tell_changed(changed)
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
            return self.members.heard(consuming.group, member, self._clock.monotonic_s())
        except AerobeeError:
            return False

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Code 35. Raises InvalidArgument."""
        client_id = read.text(request.fields, "clientID")
        group = request.fields.get("producerGroup", "")
        connections = self._producers.get(group)
        if connections is not None and connection in connections:
            del connections[connection]
            self._producing[connection].discard(group)
            if not connections:
                del self._producers[group]
        group = request.fields.get("consumerGroup", "")
        if group and self.members.left(group, client_id, connection):
            self._tell_changed([group])
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

    def lock(self, connection: Connection, request: Command) -> Command:
        """Code 41: the queues that the client holds now. Raises NotMaster, InvalidArgument."""
        self._check_master()
        asked, now_s = read_queues(request.body), self._clock.monotonic_s()
        locked = [
            queue_object(queue)
            for queue in asked.queues
            if queue.broker_name == self._broker_name
            and self.members.lock(_key(asked.group, queue), asked.client_id, now_s)
        ]
        return request.answer(body=json_bodies.write({"lockOKMQSet": locked}))

    def unlock(self, connection: Connection, request: Command) -> Command:
        """Code 42. Raises InvalidArgument."""
        asked = read_queues(request.body)
        for queue in asked.queues:
            self.members.unlock(_key(asked.group, queue), asked.client_id)
        return request.answer()

    # ------------------------------------------------------------------------------ asking

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

    def _produces(self, group: str, connection: Connection) -> None:
        if len(self._producing) >= PRODUCERS_MAX and connection not in self._producing:
            return
        self._producers.setdefault(group, OrderedDict())[connection] = sends_now()
        self._producing.setdefault(connection, set()).add(group)

    def _tell_changed(self, groups: Iterable[str]) -> None:
        """Code 40, soon, to all members that are connected here."""
        self._changed.update(dict.fromkeys(groups))
        if self._changed and not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_later(TOLD_AFTER_S, self._tell_some)

    def _tell_some(self, left: Iterator[tuple[Connection, str]] | None = None) -> None:
        """A limited number in each turn: one heart-beat may change many groups of many members."""
        left = self._to_tell() if left is None else left
        for _ in range(TOLD_PER_TURN):
            found = next(left, None)
            if found is None:
                self._is_telling = False
                self._tell_changed(())  # what changed meanwhile
                return
            connection, group = found
            connection.tell(Command(Ask.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}))
        asyncio.get_running_loop().call_soon(self._tell_some, left)

    def _to_tell(self) -> Iterator[tuple[Connection, str]]:
        """What has changed so far, once each."""
        changed, self._changed = self._changed, {}
        for group in changed:
            for member in self.members.members(group):
                if isinstance(member.connection, Connection):
                    yield member.connection, group


def _key(group: str, queue: MessageQueue) -> GroupQueue:
    return GroupQueue(group, queue.topic, queue.queue_id)
