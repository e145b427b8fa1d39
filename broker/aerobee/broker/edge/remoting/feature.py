"""Remoting: a feature, put together from its parts. It listens on the ports of gRPC."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from aerobee.access.needs import Resources
from aerobee.access.node import NodeAccess
from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.delayed.feature import Delays
from aerobee.broker.edge.remoting.assignments import Assignments
from aerobee.broker.edge.remoting.clients import Producing, RemotingClients
from aerobee.broker.edge.remoting.cluster import Cluster
from aerobee.broker.edge.remoting.conversations import Conversations
from aerobee.broker.edge.remoting.dead_letters import RemotingDeadLetters
from aerobee.broker.edge.remoting.locks import OrderLocks
from aerobee.broker.edge.remoting.lookups import RemotingLookups
from aerobee.broker.edge.remoting.members import RemotingMembers
from aerobee.broker.edge.remoting.modes import Modes
from aerobee.broker.edge.remoting.pop_handles import PopHandles
from aerobee.broker.edge.remoting.pops import RemotingPops
from aerobee.broker.edge.remoting.progress import Progress
from aerobee.broker.edge.remoting.pulls import Pulls
from aerobee.broker.edge.remoting.rates import SAMPLE_S, Rates
from aerobee.broker.edge.remoting.replies import Replies
from aerobee.broker.edge.remoting.reset_pushes import ResetPushes
from aerobee.broker.edge.remoting.resets import RemotingResets
from aerobee.broker.edge.remoting.send_backs import RemotingSendBacks
from aerobee.broker.edge.remoting.sending import Sends
from aerobee.broker.edge.remoting.settings import RemotingSettings
from aerobee.broker.edge.remoting.tools import RemotingTools
from aerobee.broker.edge.remoting.transactions import RemotingTransactions
from aerobee.broker.edge.rocketmq.known import OwnGroups
from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.edge.rocketmq.own_queues import OwnQueues
from aerobee.broker.features import Edge, Feature, Task
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.ownership import Owner
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.broker.observe.metrics.traffic import Traffic
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.popping.feature import Popping
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.message_lookup import MessageLookup
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retries.feature import Retries
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.ingest import Ingest
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.feature import Transactions
from aerobee.cluster_view.channels import Channels
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.remoting_core.frames import FrameLimits
from aerobee.remoting_core.limits import RemotingLimits
from aerobee.remoting_core.server import RemotingServer
from aerobee.rocketmq_api.rules.group_rules import begin_offset
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.dispatch import Dispatch, LoggedLimits, Serve, log_bug
from aerobee.rocketmq_remoting.guarding import guarded, peer_of
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.needs import remoting_needs
from aerobee.rocketmq_remoting.users import RemotingUsers
from aerobee.rpc.memory_budget import MemoryBudget
from aerobee.runtime.clock import Clock
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable, TopicTable
from aerobee.store.format.record_layout import HostAddress

_EXPIRY_S: Final = 10.0


class Parts(Protocol):
    """What remoting needs of the broker."""

    config: BrokerConfig
    clock: Clock
    chance: random.Random
    memory: MemoryBudget
    access: NodeAccess
    store: MessageStore
    store_host: HostAddress
    roles: Roles
    guard: Guard
    ingest: Ingest
    durability: Durability
    writes: OwnWrites
    egress: Egress
    queues: QueueReader
    reads: ReadPool
    lookup: MessageLookup
    traffic: Traffic
    expressions: CompiledExpressions
    coordinator: GroupCoordinator
    known: KnownGroups
    offsets: ConsumerOffsets
    removal: GroupRemoval
    topics: TopicTable
    groups: SubscriptionGroupTable
    popping: Popping
    delays: Delays
    retries: Retries
    transactions: Transactions
    on_dead_letters: Callable[[str, str, int], None]

    @property
    def channels(self) -> Channels:
        """To nameservers. Not there yet while features are made."""
        ...

    def on_offset_set(self, told: Callable[[GroupQueue], None]) -> None:
        """Call this once a group's offset on a queue was set or removed on this master."""
        ...

    def serve_beside(self, server: RemotingServer) -> None:
        """What gets the connections on gRPC's ports that are not gRPC."""
        ...

    def list_producers_beside(self, found: Callable[[], Iterable[tuple[str, Producing]]]) -> None:
        """Who produces over these connections, with addresses."""
        ...


class Remoting(Feature):
    """On the loop."""

    def __init__(self, parts: Parts, opened: None = None) -> None:
        config, clock, coordinator = parts.config, parts.clock, parts.coordinator
        self.modes = Modes(parts, on_changed=self._mode_changed)
        self.members: SelfAssigned[Subscribed] = SelfAssigned(self.modes.is_pop)
        self._quotas = parts.access.quotas
        coordinator.ownership.exclude_self_assigned(
            self.members.has, self.members.in_order, self.members.groups
        )
        check_master = parts.guard.check_master
        self.clients = RemotingClients(
            self.members,
            parts.known,
            parts.retries.topics,
            parts.expressions,
            clock,
            is_master=parts.roles.may_act,
        )
        parts.list_producers_beside(self.clients.all_producing)
        self.locks = OrderLocks(
            config.broker_name, self.members, parts.offsets, clock, check_master=check_master
        )
        self.cluster = Cluster(parts)
        self.dead_letters = RemotingDeadLetters(
            parts.writes,
            parts.retries.topics,
            parts.lookup,
            parts.durability,
            clock,
            parts.store_host,
            check_master=check_master,
            on_dead=parts.on_dead_letters,
        )
        self.sends = _sends(parts, self.members, self.dead_letters, self.cluster)
        self.progress = Progress(
            parts.offsets, parts.queues, parts.guard, parts.store, self.clients
        )
        self._wire_reading(parts)
        self.send_backs = RemotingSendBacks(
            parts.retries.send_backs,
            parts.lookup,
            self.clients,
            Resources(config.cluster),
            check_master=check_master,
        )
        self.transactions = RemotingTransactions(
            config.broker_name,
            parts.transactions.ends,
            parts.lookup,
            self.clients,
            Resources(config.cluster),
        )
        self.lookups = RemotingLookups(parts.lookup, Resources(config.cluster))
        self._wire_tools(parts)
        parts.transactions.ask_also(self.transactions)
        parts.on_offset_set(self._offset_set)
        self.edges: tuple[Edge, ...] = ()
        if config.remoting.enabled:
            table = guarded(self._table(), remoting_needs(config.cluster), parts.access)
            self.server = _server(parts, Dispatch(table, on_closed=self._disconnected))
            parts.serve_beside(self.server)
            self.edges = (RemotingEdge(self.pulls, self.pops),)

    def _wire_reading(self, parts: Parts) -> None:
        """What hands out messages, and says who reads which queue."""
        self.pulls = Pulls(
            parts.egress,
            self.clients,
            self.progress,
            parts.coordinator.ownership,
            parts.clock,
            is_popped=self.modes.is_pop,
            on_delivered=parts.traffic.delivered,
        )
        self.assignments = Assignments(self.cluster, self.members, self.modes)
        own = _own_pops(parts)
        self.pops = _pops(parts, own, self.clients)
        self.pop_handles = PopHandles(own, parts.popping.pops)

    def _wire_tools(self, parts: Parts) -> None:
        """What serves RocketMQ's tools, and requests that go on to clients."""
        config, clock, turns = parts.config, parts.clock, parts.reads.loop_turns
        self.rates = Rates(parts.traffic, config.cluster, clock.monotonic_s)
        self.tools = RemotingTools(
            parts.guard,
            parts.store,
            parts.queues,
            parts.offsets,
            turns,
            self.rates,
            booted_ms=clock.now_ms(),
        )
        self.settings = RemotingSettings(
            config,
            parts.roles,
            parts.topics,
            parts.groups,
            parts.guard,
            self.cluster,
            parts.retries.settings,
            parts.removal,
            parts.offsets,
            turns,
        )
        self.resets = RemotingResets(
            parts.offsets,
            parts.queues,
            parts.guard,
            turns,
            after_reset=parts.popping.until_written,
        )
        self.pushes = ResetPushes(config.broker_name, self.members, parts.offsets, clock)
        self.users = RemotingUsers(parts.access.book)
        conversations = Conversations()
        self.replies = Replies(self.clients, conversations, clock, parts.store_host)
        self.told = RemotingMembers(
            self.clients,
            conversations,
            parts.offsets,
            parts.lookup,
            Resources(config.cluster),
            clock,
            turns,
        )

    def _table(self) -> dict[int, Serve]:
        return {
            Ask.SEND_MESSAGE: self.sends.send,
            Ask.SEND_MESSAGE_V2: self.sends.send,
            Ask.SEND_BATCH_MESSAGE: self.sends.send,
            Ask.SEND_REPLY_MESSAGE: self.replies.reply,
            Ask.SEND_REPLY_MESSAGE_V2: self.replies.reply,
            Ask.RECALL_MESSAGE: self.sends.recall,
            Ask.PULL_MESSAGE: self.pulls.pull,
            Ask.LITE_PULL_MESSAGE: self.pulls.pull,
            Ask.POP_MESSAGE: self.pops.pop,
            Ask.NOTIFICATION: self.pops.notify,
            Ask.POLLING_INFO: self.pops.polling,
            Ask.ACK_MESSAGE: self.pop_handles.acknowledge,
            Ask.BATCH_ACK_MESSAGE: self.pop_handles.acknowledge_batch,
            Ask.CHANGE_MESSAGE_INVISIBLETIME: self.pop_handles.change,
            Ask.HEART_BEAT: self.clients.heart_beat,
            Ask.UNREGISTER_CLIENT: self.clients.unregister,
            Ask.GET_CONSUMER_LIST_BY_GROUP: self.clients.list_members,
            Ask.CHECK_CLIENT_CONFIG: self.clients.check_config,
            Ask.QUERY_ASSIGNMENT: self.assignments.query,
            Ask.SET_MESSAGE_REQUEST_MODE: self.modes.put,
            Ask.LOCK_BATCH_MQ: self.locks.lock,
            Ask.UNLOCK_BATCH_MQ: self.locks.unlock,
            Ask.QUERY_CONSUMER_OFFSET: self.progress.query,
            Ask.UPDATE_CONSUMER_OFFSET: self.progress.update,
            Ask.GET_MAX_OFFSET: self.progress.last,
            Ask.GET_MIN_OFFSET: self.progress.first,
            Ask.GET_EARLIEST_MSG_STORETIME: self.progress.first_time,
            Ask.SEARCH_OFFSET_BY_TIMESTAMP: self.progress.at_time,
            Ask.CONSUMER_SEND_MSG_BACK: self.send_backs.send_back,
            Ask.END_TRANSACTION: self.transactions.end,
            Ask.VIEW_MESSAGE_BY_ID: self.lookups.by_offset,
            Ask.QUERY_MESSAGE: self.lookups.by_key,
            Ask.GET_TOPIC_STATS_INFO: self.tools.topic_stats,
            Ask.GET_CONSUME_STATS: self.tools.group_stats,
            Ask.GET_BROKER_RUNTIME_INFO: self.tools.broker_status,
            Ask.VIEW_BROKER_STATS_DATA: self.tools.statistics,
            Ask.QUERY_CONSUME_TIME_SPAN: self.tools.time_spans,
            **self._administration(),
        }

    def _administration(self) -> dict[int, Serve]:
        return {
            Ask.UPDATE_AND_CREATE_TOPIC: self.settings.put_topic,
            Ask.DELETE_TOPIC_IN_BROKER: self.settings.delete_topic,
            Ask.GET_TOPIC_CONFIG: self.settings.topic,
            Ask.GET_ALL_TOPIC_CONFIG: self.settings.all_topics,
            Ask.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.settings.system_topics,
            Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.settings.put_group,
            Ask.DELETE_SUBSCRIPTIONGROUP: self.settings.delete_group,
            Ask.GET_SUBSCRIPTIONGROUP_CONFIG: self.settings.group,
            Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.settings.all_groups,
            Ask.GET_BROKER_CONFIG: self.settings.broker,
            Ask.INVOKE_BROKER_TO_RESET_OFFSET: self.resets.reset,
            Ask.AUTH_GET_USER: self.users.user,
            Ask.AUTH_LIST_USER: self.users.users,
            Ask.AUTH_GET_ACL: self.users.policies_of_user,
            Ask.AUTH_LIST_ACL: self.users.policies,
            Ask.CLONE_GROUP_OFFSET: self.resets.clone,
            Ask.GET_CONSUMER_CONNECTION_LIST: self.told.consumers,
            Ask.GET_PRODUCER_CONNECTION_LIST: self.told.producers,
            Ask.GET_ALL_PRODUCER_INFO: self.told.all_producers,
            Ask.QUERY_TOPIC_CONSUME_BY_WHO: self.told.groups_of_topic,
            Ask.QUERY_TOPICS_BY_CONSUMER: self.told.topics_of_group,
            Ask.QUERY_SUBSCRIPTION_BY_CONSUMER: self.told.subscription,
            Ask.GET_CONSUMER_RUNNING_INFO: self.told.running_info,
            Ask.CONSUME_MESSAGE_DIRECTLY: self.told.consume_directly,
            Ask.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.told.positions,
        }

    def _disconnected(self, connection: Any) -> None:
        self.clients.disconnected(connection)
        self._quotas.disconnected(peer_of(connection))

    def _mode_changed(self, group: str, topic: str) -> None:
        self.pops.end_of(group, topic)
        self.clients.tell_changed((group,))

    def _offset_set(self, key: GroupQueue) -> None:
        self.progress.offset_set(key)
        self.pulls.offset_set(key)
        self.pushes.offset_set(key)

    def tasks(self) -> Mapping[str, Task]:
        return {"remoting-members": self._expire, "remoting-rates": self._sample}

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.rates.sample()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_S)
            self.clients.expire()

    def begin(self, term: MasterTerm) -> None:
        self.locks.begin()

    def end(self) -> None:
        self.members.clear()
        self.locks.end()
        self.dead_letters.forget()
        self.pulls.end_all()
        self.pops.end_all()


class RemotingEdge:
    """Has no port of its own."""

    def __init__(self, pulls: Pulls, pops: RemotingPops) -> None:
        self._pulls = pulls
        self._pops = pops

    async def start(self) -> int:
        """See `Edge`."""
        return 0

    async def set_serving(self, serving: bool) -> None:
        """Clients learn it from routes."""

    def end_pulls(self) -> None:
        """See `Edge`."""
        self._pulls.end_all()
        self._pops.end_all()

    async def stop(self, grace_s: float) -> None:
        """Its server stops with the one beside it."""


def _sends(
    parts: Parts,
    members: SelfAssigned[Subscribed],
    dead_letters: RemotingDeadLetters,
    cluster: Cluster,
) -> Sends:
    config, clock = parts.config, parts.clock
    return Sends(
        OwnQueues(
            config.broker_name,
            parts.ingest,
            parts.durability,
            parts.delays.schedule,
            clock,
            is_master=parts.roles.may_act,
            store_host_ipv6=parts.writes.store_host_ipv6,
        ),
        members,
        dead_letters,
        cluster,
        parts.guard,
        clock,
        parts.chance,
        parts.store_host,
        process_id=os.getpid(),
    )


def _own_pops(parts: Parts) -> OwnPops:
    ownership = parts.coordinator.ownership
    return OwnPops(
        parts.config.broker_name,
        parts.popping.pops,
        parts.topics,
        parts.offsets,
        parts.guard,
        parts.lookup,
        parts.clock,
        parts.chance,
        is_master=parts.roles.may_act,
        is_ordered=parts.popping.is_ordered,
        on_delivered=parts.traffic.delivered,
        is_taken=lambda key: ownership.owner(key) in (Owner.SELF, Owner.LEASE),
    )


def _pops(parts: Parts, own: OwnPops, clients: RemotingClients) -> RemotingPops:
    def begin_of(key: GroupQueue) -> int:
        offset = parts.offsets.query(key)
        bounds = parts.queues.bounds(key.topic, key.queue_id)
        return begin_offset(*bounds) if offset is None else offset

    popping = parts.popping
    return RemotingPops(
        own,
        popping.pops,
        popping.bells,
        clients,
        OwnGroups(parts.groups),
        parts.expressions,
        parts.clock,
        ask_order=popping.ask_order,
        begin_of=begin_of,
    )


def _server(parts: Parts, handler: Dispatch) -> RemotingServer:
    memory = parts.memory.remoting_bytes
    frames = FrameLimits()
    return RemotingServer(
        handler,
        LoggedLimits(),
        now=parts.clock.monotonic_s,
        on_bug=log_bug,
        limits=RemotingLimits(
            frames=FrameLimits(frame_bytes_max=min(frames.frame_bytes_max, memory))
        ),
        memory_bytes_max=memory,
    )
