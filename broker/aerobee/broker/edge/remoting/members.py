"""What tools learn of connected clients: who they are, and what they answer themselves."""

from __future__ import annotations

from typing import Any, Final

from aerobee.access.needs import Resources
from aerobee.access.resources import SEEING, Action
from aerobee.access.running import groups_seen, require, topics_seen
from aerobee.broker.edge.own.needs import topics_of
from aerobee.broker.edge.remoting.clients import RemotingClients
from aerobee.broker.edge.remoting.conversations import Conversations
from aerobee.broker.groups.self_assigned import SelfMember
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import admin_bodies, json_bodies
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Ask, Code
from aerobee.rocketmq_remoting.heartbeats import Beginning, Subscribed
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import DeadlineExceeded, MessageIllegal, Unreachable
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.store.format.message_id import MessageIdIllegal, parse_offset_message_id
from aerobee.store.format.record import Record

_TIMEOUT_S: Final = 4.0
"""mqadmin waits for 5 s."""
_CLIENTS_MAX: Final = 1_000
"""In one answer."""


class RemotingMembers:
    """On the loop."""

    def __init__(
        self,
        clients: RemotingClients,
        conversations: Conversations,
        offsets: ConsumerOffsets,
        lookup: MessageLookup,
        resources: Resources,
        clock: Clock,
        turns: LoopTurns,
    ) -> None:
        self._clients = clients
        self._conversations = conversations
        self._offsets = offsets
        self._lookup = lookup
        self._resources = resources
        self._clock = clock
        self._turns = turns

    # ------------------------------------------------------------------------------ who is here

    def consumers(self, connection: Connection, request: Command) -> Command:
        """Code 203. Raises InvalidArgument."""
        group = read.text(request.fields, "consumerGroup")
        members = self._clients.members.in_order(group)[:_CLIENTS_MAX]
        if not members:
            return _not_online(request, group)
        sees = topics_seen()
        subscriptions = {
            topic: admin_bodies.subscription_object(wanted)
            for member in members
            for topic, wanted in member.wants.items()
            if sees(topic)
        }
        _, _, is_passive, beginning = members[0].facts
        body = {
            "connectionSet": [_member_object(each) for each in members],
            "consumeFromWhere": beginning if beginning in set(Beginning) else Beginning.LAST,
            "consumeType": "CONSUME_PASSIVELY" if is_passive else "CONSUME_ACTIVELY",
            "messageModel": "BROADCASTING" if members[0].is_broadcasting else "CLUSTERING",
            "subscriptionTable": subscriptions,
        }
        return request.answer(body=json_bodies.write(body))

    def producers(self, connection: Connection, request: Command) -> Command:
        """Code 204. Raises InvalidArgument."""
        group = read.text(request.fields, "producerGroup")
        found = [
            admin_bodies.client_object(each.peer, known.client_id, known.language, known.version)
            for each, known in self._clients.producers_of(group)[:_CLIENTS_MAX]
        ]
        if not found:
            return request.answer(
                Code.SYSTEM_ERROR, remark=f"no producer of group {group} is connected here"
            )
        return request.answer(body=json_bodies.write({"connectionSet": found}))

    async def all_producers(self, connection: Connection, request: Command) -> Command:
        """Code 328."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        found: dict[str, list[dict[str, Any]]] = {}
        async for group in self._turns.each(LISTINGS, self._clients.producer_groups()):
            found[group] = [
                {
                    "clientId": known.client_id,
                    "language": admin_bodies.known_language(known.language),
                    "lastUpdateTimestamp": now_ms - int((now_s - known.heard_s) * 1_000),
                    "remoteIP": each.peer,
                    "version": known.version,
                }
                for each, known in self._clients.producers_of(group)[:_CLIENTS_MAX]
            ]
        return request.answer(body=json_bodies.write({"data": found}))

    async def groups_of_topic(self, connection: Connection, request: Command) -> Command:
        """Code 300: groups that consume a topic. Raises InvalidArgument."""
        topic, sees = read.text(request.fields, "topic"), groups_seen()
        members = self._clients.members
        found = []
        async for group in self._turns.each(
            LISTINGS, sorted({*self._offsets.groups(), *members.groups()})
        ):
            is_reader = self._offsets.has_committed(group, topic)
            is_reader = is_reader or any(members.wishes(group, topic))
            if is_reader and sees(group):
                found.append(group)
        return request.answer(body=json_bodies.write({"groupList": found}))

    async def topics_of_group(self, connection: Connection, request: Command) -> Command:
        """Code 343: topics that a group consumes. Raises InvalidArgument."""
        group, sees = read.text(request.fields, "group"), topics_seen()
        found = {key.topic for key, _ in self._offsets.of_group(group)}
        for member in self._clients.members.members(group):
            found.update(member.wants)
        body = {"topicList": sorted(filter(sees, found))}
        return request.answer(body=json_bodies.write(body))

    def subscription(self, connection: Connection, request: Command) -> Command:
        """Code 345: what a group wants of a topic. Raises InvalidArgument."""
        group, topic = read.text(request.fields, "group"), read.text(request.fields, "topic")
        wanted = self._clients.subscribed(group, topic)
        told = None if wanted is None else admin_bodies.subscription_object(wanted)
        body = {"group": group, "subscriptionData": told, "topic": topic}
        return request.answer(body=json_bodies.write(body))

    # ------------------------------------------------------------------------------ asking them

    async def running_info(self, connection: Connection, request: Command) -> Command:
        """Code 307: a consumer's own account of itself. Raises AerobeeError."""
        member = self._member(request)
        if member is None:
            return _not_online(request, request.fields.get("clientId", ""))
        return await self._passed_on(request, member, request.fields, b"")

    async def consume_directly(self, connection: Connection, request: Command) -> Command:
        """Code 309: a consumer handles one message now, whatever its group has consumed. Raises
        AerobeeError."""
        member = self._member(request)
        if member is None:
            return _not_online(request, request.fields.get("clientId", ""))
        try:
            _, position = parse_offset_message_id(read.text(request.fields, "msgId"))
        except MessageIdIllegal as error:
            raise MessageIllegal(str(error)) from None
        record = await self._lookup.by_offset(position)
        require(self._resources.topics(topics_of(Record(record)), SEEING | Action.SUB))
        return await self._passed_on(request, member, request.fields, record)

    async def positions(self, connection: Connection, request: Command) -> Command:
        """Code 223: how far the members of a group are, by their own account. Raises
        AerobeeError."""
        fields = request.fields
        group, topic = read.text(fields, "group"), read.text(fields, "topic")
        only = fields.get("clientAddr", "")
        question = Command(Ask.GET_CONSUMER_STATUS_FROM_CLIENT, {"group": group, "topic": topic})
        found = {}
        for member in self._clients.members.in_order(group)[:_CLIENTS_MAX]:
            asked = member.connection
            if not isinstance(asked, Connection) or (only and only != member.client_id):
                continue
            answer = await self._conversations.ask(asked, question, _TIMEOUT_S)
            if answer.code == Code.SUCCESS:
                table = json_bodies.read_object_keys(answer.body, "messageQueueTable")
                found[member.client_id] = table
        if not found:
            return _not_online(request, group)
        return request.answer(body=json_bodies.write({"consumerTable": found}))

    def _member(self, request: Command) -> SelfMember[Subscribed] | None:
        group = read.text(request.fields, "consumerGroup")
        return self._clients.members.member(group, request.fields.get("clientId", ""))

    async def _passed_on(
        self,
        request: Command,
        member: SelfMember[Subscribed],
        fields: Any,
        body: bytes,
    ) -> Command:
        asked = member.connection
        assert isinstance(asked, Connection), "members of remoting have one"
        told = {name: value for name, value in fields.items() if name not in _OF_THE_CALLER}
        try:
            answer = await self._conversations.ask(
                asked, Command(request.code, told, body), _TIMEOUT_S
            )
        except DeadlineExceeded as error:
            return request.answer(Code.CONSUME_MSG_TIMEOUT, remark=str(error))
        except Unreachable:
            return _not_online(request, member.client_id)
        return request.answer(answer.code, answer.fields, answer.body, answer.remark)


_OF_THE_CALLER: Final = frozenset(("AccessKey", "Signature", "SecurityToken"))


def _member_object(member: SelfMember[Subscribed]) -> dict[str, Any]:
    language, version, _, _ = member.facts
    address = member.connection.peer if isinstance(member.connection, Connection) else ""
    return admin_bodies.client_object(address, member.client_id, language, version)


def _not_online(request: Command, who: str) -> Command:
    return request.answer(
        Code.CONSUMER_NOT_ONLINE, remark=f"no remoting client {who!r:.80} is connected here"
    )
