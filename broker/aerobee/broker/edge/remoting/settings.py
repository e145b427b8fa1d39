"""Topics and groups as RocketMQ's tools see and change them, and what is set at the broker."""

from __future__ import annotations

from typing import Final

from aerobee.access.running import groups_seen, topics_listed
from aerobee.broker.config import BrokerConfig
from aerobee.broker.edge.remoting.cluster import Cluster, TopicWish
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retries.settings import RetrySettings
from aerobee.broker.sending.guard import Guard
from aerobee.domain import names
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import admin_bodies, json_bodies
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Code
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.store.engine.config import FlushMode
from aerobee.store.engine.tables.config_tables import (
    SubscriptionGroupTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX, RETRY_PREFIX
from aerobee.store.format.retry_delays import Exponential, Steps

_DELETE_TIMEOUT_S: Final = 4.0
"""mqadmin waits for 5 s."""


class RemotingSettings:
    """On the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        roles: Roles,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        guard: Guard,
        cluster: Cluster,
        policies: RetrySettings,
        removal: GroupRemoval,
        offsets: ConsumerOffsets,
        turns: LoopTurns,
    ) -> None:
        self._config = config
        self._roles = roles
        self._topics = topics
        self._groups = groups
        self._guard = guard
        self._cluster = cluster
        self._policies = policies
        self._removal = removal
        self._offsets = offsets
        self._turns = turns

    # ------------------------------------------------------------------------------ topics

    def topic(self, connection: Connection, request: Command) -> Command:
        """Code 351. Raises TopicNotFound, InvalidArgument."""
        entry = self._guard.topic(read.text(request.fields, "topic"))
        return request.answer(body=json_bodies.write(_topic_object(entry)))

    async def all_topics(self, connection: Connection, request: Command) -> Command:
        """Code 21: those that the caller may see."""
        sees, table = topics_listed(), {}
        async for name in self._turns.each(LISTINGS, self._topics.names()):
            entry = self._topics.get(name)
            if entry is not None and not names.is_system_topic(name) and sees(name):
                table[name] = _topic_object(entry)
        body = {"dataVersion": admin_bodies.DATA_VERSION, "topicConfigTable": table}
        return request.answer(body=json_bodies.write(body))

    def system_topics(self, connection: Connection, request: Command) -> Command:
        """Code 305: what tools hide from lists. Here no list has such topics."""
        return request.answer(body=json_bodies.write({"topicList": []}))

    async def put_topic(self, connection: Connection, request: Command) -> Command:
        """Code 17: queues on this broker's group, the rest in the cluster. Raises AerobeeError."""
        fields = request.fields
        queues = read.number(fields, "writeQueueNums")
        if queues != read.number(fields, "readQueueNums", queues):
            raise InvalidArgument(
                "a topic has as many queues to read as to write: give both options the same number"
            )
        if queues <= 0:
            raise InvalidArgument(f"a topic needs at least one queue, not {queues}")
        wanted = TopicWish(
            read.text(fields, "topic"),
            queues,
            read.number(fields, "perm", 0),
            read.flag(fields, "order"),
            admin_bodies.read_attributes(fields.get("attributes", "")),
        )
        await self._cluster.put_topic(connection, wanted)
        return request.answer()

    async def delete_topic(self, connection: Connection, request: Command) -> Command:
        """Code 215: in the whole cluster. Raises AerobeeError."""
        topic = read.text(request.fields, "topic")
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                # mqadmin asks for it after it has deleted the group.
                if self._knows(topic.removeprefix(prefix)):
                    raise InvalidArgument(f"{topic} belongs to its group: delete the group")
                return request.answer()
        await self._cluster.delete_topic(connection, topic)
        return request.answer()

    # ------------------------------------------------------------------------------ groups

    async def all_groups(self, connection: Connection, request: Command) -> Command:
        """Code 201: those that the caller may see."""
        sees = groups_seen()
        known = {*self._groups.names(), *self._offsets.groups()}
        table = {}
        async for group in self._turns.each(LISTINGS, sorted(known)):
            if not names.is_system_group(group) and sees(group):
                table[group] = self._group_object(group)
        body = {"dataVersion": admin_bodies.DATA_VERSION, "subscriptionGroupTable": table}
        return request.answer(body=json_bodies.write(body))

    def group(self, connection: Connection, request: Command) -> Command:
        """Code 352. Raises InvalidArgument."""
        group = read.text(request.fields, "group")
        if not self._knows(group):
            return request.answer(
                Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"this broker knows no group {group}"
            )
        return request.answer(body=json_bodies.write(self._group_object(group)))

    def _knows(self, group: str) -> bool:
        return group in self._groups or group in self._offsets.groups()

    def _group_object(self, group: str) -> dict[str, object]:
        policy = self._policies.policy(group)
        back_off = policy.back_off
        return admin_bodies.group_object(
            group,
            retries_max=policy.retries_max,
            is_ordered=policy.is_ordered,
            exponential=(back_off.initial_ms, back_off.max_ms, back_off.multiplier)
            if isinstance(back_off, Exponential)
            else None,
            steps_ms=back_off.delays_ms if isinstance(back_off, Steps) else (),
            attributes={},
        )

    async def put_group(self, connection: Connection, request: Command) -> Command:
        """Code 200: at this replica set. Raises AerobeeError."""
        wanted = admin_bodies.read_group(request.body)
        await self._offsets.acting_for(wanted.group)
        before = self._policies.policy(wanted.group)
        # Tools say everything, so a default that nobody chose must stay none.
        is_other = wanted.retries_max is not None and wanted.retries_max != before.retries_max
        growing = None if wanted.exponential is None else Exponential(*wanted.exponential)
        await self._policies.change(
            wanted.group,
            retries_max=wanted.retries_max if is_other else None,
            uses_levels=wanted.uses_levels and before.back_off is not None,
            exponential=growing,
            is_ordered=wanted.is_ordered,
        )
        return request.answer()

    async def delete_group(self, connection: Connection, request: Command) -> Command:
        """Code 207: at this replica set. Raises AerobeeError."""
        group = read.text(request.fields, "groupName")
        if not read.flag(request.fields, "cleanOffset"):
            raise InvalidArgument(
                f"group {group} can only be deleted with its offsets: say so (mqadmin: -r true)"
            )
        await self._offsets.acting_for(group)
        await self._removal.delete_group(group, force=False, timeout_s=_DELETE_TIMEOUT_S)
        return request.answer()

    # ------------------------------------------------------------------------------ the broker

    def broker(self, connection: Connection, request: Command) -> Command:
        """Code 26: what Apache's brokers have a name for."""
        config, store = self._config, self._config.store
        is_master = self._roles.may_act()
        is_sync = store.flush_mode is FlushMode.SYNC
        copies = "SYNC" if config.replication.min_insync_replicas > 1 else "ASYNC"
        found = {
            "brokerClusterName": config.cluster,
            "brokerId": 0 if is_master else config.broker_id or 1,
            "brokerName": config.broker_name,
            "brokerRole": f"{copies}_MASTER" if is_master else "SLAVE",
            "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": store.segment_bytes,
            "minInSyncReplicas": config.replication.min_insync_replicas,
            "namesrvAddr": ";".join(config.nameservers),
            "timerWheelEnable": True,
            "transactionCheckInterval": config.transactions.check_interval_ms,
            "transactionCheckMax": config.transactions.checks_max,
            "transactionTimeOut": config.transactions.timeout_ms,
        }
        return request.answer(body=admin_bodies.properties_text(found))


def _topic_object(entry: TopicConfig) -> dict[str, object]:
    return admin_bodies.topic_object(
        entry.name,
        read_queues=entry.read_queue_count,
        write_queues=entry.write_queue_count,
        perm=entry.perm,
        order=entry.order,
        attributes=entry.attributes,
    )
