"""Consuming messages: PushConsumer calls a listener, PullConsumer is polled.

Both share the queues of a topic among the members of a group under leases, keep the group's
offsets, and deliver every message at least once.
"""

from __future__ import annotations

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.answers import Answer, Batch, Reject, RetryLater
from aerobee.consumer_client.blocking import BlockingPullConsumer, BlockingPushConsumer
from aerobee.consumer_client.blocking_simple import BlockingSimpleConsumer
from aerobee.consumer_client.filters import sql
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.consumer_client.listener import (
    ConsumeResult,
    Exhausted,
    Listener,
    OnExhausted,
    Ordering,
)
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.consumer_client.popped_message import PoppedMessage
from aerobee.consumer_client.pull_consumer import PullConsumer
from aerobee.consumer_client.push_consumer import PushConsumer
from aerobee.consumer_client.received_batch import ReceivedBatch
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.simple_consumer import SimpleConsumer
from aerobee.consumer_client.statistics import (
    ConsumerStatistics,
    QueueStatistics,
    SimpleConsumerStatistics,
)
from aerobee.consumer_client.strategies import (
    Averagely,
    AveragelyByCircle,
    ByConfiguration,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    RebalanceStrategy,
    Sticky,
)
from aerobee.domain.sql_filter.expression import SqlExpression

__all__ = [
    "Answer",
    "Averagely",
    "AveragelyByCircle",
    "Batch",
    "BlockingPullConsumer",
    "BlockingPushConsumer",
    "BlockingSimpleConsumer",
    "ByConfiguration",
    "ConsistentHash",
    "ConsumeResult",
    "ConsumerConfig",
    "ConsumerStatistics",
    "Exhausted",
    "FlowLimits",
    "Listener",
    "MachineRoom",
    "MachineRoomNearby",
    "MessageQueue",
    "OnExhausted",
    "Ordering",
    "PoppedMessage",
    "PullConsumer",
    "PushConsumer",
    "QueueStatistics",
    "RebalanceStrategy",
    "ReceivedBatch",
    "ReceivedMessage",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "SimpleConsumer",
    "SimpleConsumerStatistics",
    "SqlExpression",
    "StartFrom",
    "Sticky",
    "sql",
]
