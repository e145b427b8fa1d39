"""What RocketMQ's tools ask a broker: how far a topic, and a group, have come."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from aerobee.access.running import topics_seen
from aerobee.broker.edge.remoting.rates import BROKER_GET, BROKER_PUT, Rates
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.sending.guard import Guard
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain import names
from aerobee.remoting_core.command import OWN_VERSION, Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting import json_bodies
from aerobee.rocketmq_remoting.admin_bodies import rates_object
from aerobee.rocketmq_remoting.codes import Code
from aerobee.rocketmq_remoting.queues import queue_object
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.store.engine.message_store import MessageStore


class RemotingTools:
    """On the loop."""

    def __init__(
        self,
        guard: Guard,
        store: MessageStore,
        queues: QueueReader,
        offsets: ConsumerOffsets,
        turns: LoopTurns,
        rates: Rates,
        *,
        booted_ms: int,
    ) -> None:
        self._guard = guard
        self._store = store
        self._version = importlib.metadata.version("aerobee")
        self._queues = queues
        self._offsets = offsets
        self._turns = turns
        self._rates = rates
        self._booted_ms = booted_ms

    async def topic_stats(self, connection: Connection, request: Command) -> Command:
        """Code 202. Raises AerobeeError."""
        topic = read.text(request.fields, "topic")
        self._guard.check_confirmed()
        entry = self._guard.topic(topic)
        count = max(entry.read_queue_count, entry.write_queue_count)
        table = json_bodies.ObjectKeys()
        async for queue_id in self._turns.each(LISTINGS, range(count)):
            first, last = self._queues.bounds(topic, queue_id)
            stored_ms = await self._queues.last_store_timestamp_ms(topic, queue_id)
            found = {"lastUpdateTimestamp": stored_ms, "maxOffset": last, "minOffset": first}
            table.append((self._queue(topic, queue_id), found))
        return request.answer(body=json_bodies.write({"offsetTable": table, "topicPutTps": 0.0}))

    def broker_status(self, connection: Connection, request: Command) -> Command:
        """Code 28: what means the same here as in Apache's brokers."""
        rates = self._rates
        came, went = rates.total(BROKER_PUT), rates.total(BROKER_GET)
        found = {
            "bootTimestamp": self._booted_ms,
            "brokerVersion": OWN_VERSION,
            "brokerVersionDesc": f"aerobee {self._version}",
            "commitLogMaxOffset": self._store.appended_end,
            "commitLogMinOffset": self._store.min_offset,
            "getTransferredTps": self._per_second(BROKER_GET),
            "msgGetTotalTodayMorning": 0,
            "msgGetTotalTodayNow": went,
            "msgGetTotalYesterdayMorning": 0,
            "msgPutTotalTodayMorning": 0,
            "msgPutTotalTodayNow": came,
            "msgPutTotalYesterdayMorning": 0,
            "putTps": self._per_second(BROKER_PUT),
        }
        table = {name: str(value) for name, value in found.items()}
        return request.answer(body=json_bodies.write({"table": table}))

    def _per_second(self, statistic: str) -> str:
        """In the last minute, which Apache's brokers give for three spans."""
        spans = self._rates.of(statistic, "")
        assert spans is not None, "the broker's own are always counted"
        count, seconds = spans["Minute"]
        rate = f"{count / max(1.0, seconds):.1f}"
        return f"{rate} {rate} {rate}"

    def statistics(self, connection: Connection, request: Command) -> Command:
        """Code 315: how much of something was counted lately. Raises InvalidArgument."""
        statistic = read.text(request.fields, "statsName")
        key = read.text(request.fields, "statsKey")
        spans = self._rates.of(statistic, key)
        if spans is None:
            return request.answer(
                Code.SYSTEM_ERROR, remark=f"nothing was counted as {statistic} of {key}"
            )
        return request.answer(body=json_bodies.write(rates_object(spans)))

    async def group_stats(self, connection: Connection, request: Command) -> Command:
        """Code 208: of one topic, or of all that the group has an offset on. Raises
        AerobeeError."""
        fields = request.fields
        group, only = read.text(fields, "consumerGroup"), fields.get("topic", "")
        names.check_group_name(group)
        self._offsets.check_known()
        sees, table = topics_seen(), json_bodies.ObjectKeys()
        async for key, offset in self._turns.each(LISTINGS, sorted(self._offsets.of_group(group))):
            if (only and key.topic != only) or not sees(key.topic):
                continue
            try:
                self._guard.check_queue(key.topic, key.queue_id)
                _, last = self._queues.bounds(key.topic, key.queue_id)
            except AerobeeError:
                continue  # the topic is gone
            found = {
                "brokerOffset": last,
                "consumerOffset": offset,
                "lastTimestamp": 0,
                "pullOffset": offset,
            }
            table.append((self._queue(key.topic, key.queue_id), found))
        return request.answer(body=json_bodies.write({"consumeTps": 0.0, "offsetTable": table}))

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return queue_object(MessageQueue(topic, self._guard.broker_name, queue_id))
