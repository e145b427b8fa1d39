"""Aerobee for programs: `from aerobee import Producer, PushConsumer, Message`.

Every name is imported on first use, so that `import aerobee` costs nothing and a program that only
sends loads no consumer. Other source roots, and other distributions, contain further parts of this
package: its path is extended by them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from aerobee import errors as errors
    from aerobee.access.credentials import Credentials as Credentials
    from aerobee.access.credentials import user_credentials as user_credentials
    from aerobee.client_core.admin_access import AccessAnswer as AccessAnswer
    from aerobee.client_core.admin_access import NewSecret as NewSecret
    from aerobee.client_core.admin_access import Policy as Policy
    from aerobee.client_core.admin_access import Quota as Quota
    from aerobee.client_core.admin_access import User as User
    from aerobee.client_core.admin_blocking import BlockingAdminClient as BlockingAdminClient
    from aerobee.client_core.admin_brokers import BrokerStatistics as BrokerStatistics
    from aerobee.client_core.admin_brokers import CleanedStore as CleanedStore
    from aerobee.client_core.admin_brokers import HandOver as HandOver
    from aerobee.client_core.admin_brokers import MasterSeen as MasterSeen
    from aerobee.client_core.admin_brokers import RemovedUnread as RemovedUnread
    from aerobee.client_core.admin_brokers import ReplicaLag as ReplicaLag
    from aerobee.client_core.admin_client import AdminClient as AdminClient
    from aerobee.client_core.admin_cluster import Broker as Broker
    from aerobee.client_core.admin_cluster import BrokerGroup as BrokerGroup
    from aerobee.client_core.admin_cluster import ClusterState as ClusterState
    from aerobee.client_core.admin_groups import BackOff as BackOff
    from aerobee.client_core.admin_groups import DeletedGroup as DeletedGroup
    from aerobee.client_core.admin_groups import Group as Group
    from aerobee.client_core.admin_groups import GroupQueueState as GroupQueueState
    from aerobee.client_core.admin_groups import GroupRetry as GroupRetry
    from aerobee.client_core.admin_groups import InOrderRetry as InOrderRetry
    from aerobee.client_core.admin_groups import Member as Member
    from aerobee.client_core.admin_topics import Permission as Permission
    from aerobee.client_core.admin_topics import Topic as Topic
    from aerobee.client_core.admin_topics import TopicDescription as TopicDescription
    from aerobee.client_core.admin_topics import TopicQueue as TopicQueue
    from aerobee.client_core.admin_topics import TopicSpread as TopicSpread
    from aerobee.client_core.broker_groups import BrokerGroupState as BrokerGroupState
    from aerobee.client_core.broker_groups import Remaining as Remaining
    from aerobee.client_core.broker_groups import UnreadBy as UnreadBy
    from aerobee.client_core.cluster import ClusterConnection as ClusterConnection
    from aerobee.client_core.codecs import Codec as Codec
    from aerobee.client_core.connected_clients import ConnectedClient as ConnectedClient
    from aerobee.client_core.connected_clients import ConnectedClients as ConnectedClients
    from aerobee.client_core.dead_letters import FoundLetters as FoundLetters
    from aerobee.client_core.dead_letters import Letter as Letter
    from aerobee.client_core.dead_letters import LetterFilter as LetterFilter
    from aerobee.client_core.group_summaries import GroupSummaries as GroupSummaries
    from aerobee.client_core.group_summaries import GroupSummary as GroupSummary
    from aerobee.client_core.master_search import AnswerDict as AnswerDict
    from aerobee.client_core.master_search import AnswerList as AnswerList
    from aerobee.client_core.message import Message as Message
    from aerobee.client_core.message import ReceivedMessage as ReceivedMessage
    from aerobee.client_core.messages import FoundMessages as FoundMessages
    from aerobee.client_core.messages import QueueMessages as QueueMessages
    from aerobee.client_core.messages import SentMessage as SentMessage
    from aerobee.client_core.offsets import QueueBounds as QueueBounds
    from aerobee.client_core.prometheus import PrometheusMetrics as PrometheusMetrics
    from aerobee.client_core.recurring import RecurringSchedule as RecurringSchedule
    from aerobee.client_core.schedules import WaitingMessage as WaitingMessage
    from aerobee.client_core.schedules import WaitingMessages as WaitingMessages
    from aerobee.client_core.transactions import OpenTransaction as OpenTransaction
    from aerobee.client_core.transactions import OpenTransactions as OpenTransactions
    from aerobee.client_core.transactions import TransactionOutcome as TransactionOutcome
    from aerobee.cluster_view.route import MessageQueue as MessageQueue
    from aerobee.consumer_client.answers import Batch as Batch
    from aerobee.consumer_client.answers import Reject as Reject
    from aerobee.consumer_client.answers import RetryLater as RetryLater
    from aerobee.consumer_client.blocking import BlockingPullConsumer as BlockingPullConsumer
    from aerobee.consumer_client.blocking import BlockingPushConsumer as BlockingPushConsumer
    from aerobee.consumer_client.blocking_simple import (
        BlockingSimpleConsumer as BlockingSimpleConsumer,
    )
    from aerobee.consumer_client.filters import sql as sql
    from aerobee.consumer_client.flow_control import FlowLimits as FlowLimits
    from aerobee.consumer_client.listener import ConsumeResult as ConsumeResult
    from aerobee.consumer_client.listener import Exhausted as Exhausted
    from aerobee.consumer_client.listener import Listener as Listener
    from aerobee.consumer_client.listener import OnExhausted as OnExhausted
    from aerobee.consumer_client.listener import Ordering as Ordering
    from aerobee.consumer_client.options import ConsumerConfig as ConsumerConfig
    from aerobee.consumer_client.options import StartFrom as StartFrom
    from aerobee.consumer_client.popped_message import PoppedMessage as PoppedMessage
    from aerobee.consumer_client.pull_consumer import PullConsumer as PullConsumer
    from aerobee.consumer_client.push_consumer import PushConsumer as PushConsumer
    from aerobee.consumer_client.received_batch import ReceivedBatch as ReceivedBatch
    from aerobee.consumer_client.retry_schedule import RetryPolicy as RetryPolicy
    from aerobee.consumer_client.simple_consumer import SimpleConsumer as SimpleConsumer
    from aerobee.consumer_client.statistics import ConsumerStatistics as ConsumerStatistics
    from aerobee.consumer_client.statistics import QueueStatistics as QueueStatistics
    from aerobee.consumer_client.statistics import (
        SimpleConsumerStatistics as SimpleConsumerStatistics,
    )
    from aerobee.consumer_client.strategies import Averagely as Averagely
    from aerobee.consumer_client.strategies import AveragelyByCircle as AveragelyByCircle
    from aerobee.consumer_client.strategies import ByConfiguration as ByConfiguration
    from aerobee.consumer_client.strategies import ConsistentHash as ConsistentHash
    from aerobee.consumer_client.strategies import MachineRoom as MachineRoom
    from aerobee.consumer_client.strategies import MachineRoomNearby as MachineRoomNearby
    from aerobee.consumer_client.strategies import RebalanceStrategy as RebalanceStrategy
    from aerobee.consumer_client.strategies import Sticky as Sticky
    from aerobee.consumer_client.typed import BodyRefused as BodyRefused
    from aerobee.consumer_client.typed import TypedTopic as TypedTopic
    from aerobee.domain.sql_filter.expression import SqlExpression as SqlExpression
    from aerobee.errors import AerobeeError as AerobeeError
    from aerobee.producer_client.blocking import BlockingProducer as BlockingProducer
    from aerobee.producer_client.blocking import BlockingTransaction as BlockingTransaction
    from aerobee.producer_client.blocking import (
        BlockingTransactionOfSeveral as BlockingTransactionOfSeveral,
    )
    from aerobee.producer_client.checks import CheckAnswer as CheckAnswer
    from aerobee.producer_client.checks import CheckTransaction as CheckTransaction
    from aerobee.producer_client.checks import TransactionCheck as TransactionCheck
    from aerobee.producer_client.config import Compression as Compression
    from aerobee.producer_client.config import ProducerConfig as ProducerConfig
    from aerobee.producer_client.outbox import Outbox as Outbox
    from aerobee.producer_client.outbox import OutboxRelay as OutboxRelay
    from aerobee.producer_client.producer import Producer as Producer
    from aerobee.producer_client.receipt import Durability as Durability
    from aerobee.producer_client.receipt import Receipt as Receipt
    from aerobee.producer_client.receipt import Receipts as Receipts
    from aerobee.producer_client.receipt import SendStatus as SendStatus
    from aerobee.producer_client.several import TransactionOfSeveral as TransactionOfSeveral
    from aerobee.producer_client.statistics import ProducerStatistics as ProducerStatistics
    from aerobee.producer_client.transactions import Transaction as Transaction
    from aerobee.rpc.tls_config import TlsConfig as TlsConfig
    from aerobee.runtime.call_context import request_scope as request_scope
    from aerobee.runtime.freed_memory import keep_freed_memory as keep_freed_memory

    __version__: str

# The module of each name; a test keeps this equal to the imports above.
_NAMES = {
    "aerobee.access.credentials": ("Credentials", "user_credentials"),
    "aerobee.client_core.admin_blocking": ("BlockingAdminClient",),
    "aerobee.client_core.admin_client": ("AdminClient",),
    "aerobee.client_core.admin_topics": (
        "Permission",
        "Topic",
        "TopicDescription",
        "TopicQueue",
        "TopicSpread",
    ),
    "aerobee.client_core.admin_brokers": (
        "BrokerStatistics",
        "CleanedStore",
        "HandOver",
        "MasterSeen",
        "RemovedUnread",
        "ReplicaLag",
    ),
    "aerobee.client_core.admin_groups": (
        "BackOff",
        "DeletedGroup",
        "Group",
        "GroupQueueState",
        "GroupRetry",
        "InOrderRetry",
        "Member",
    ),
    "aerobee.client_core.admin_access": ("AccessAnswer", "NewSecret", "Policy", "Quota", "User"),
    "aerobee.client_core.admin_cluster": ("Broker", "BrokerGroup", "ClusterState"),
    "aerobee.client_core.broker_groups": ("BrokerGroupState", "Remaining", "UnreadBy"),
    "aerobee.client_core.connected_clients": ("ConnectedClient", "ConnectedClients"),
    "aerobee.client_core.dead_letters": ("FoundLetters", "Letter", "LetterFilter"),
    "aerobee.client_core.group_summaries": ("GroupSummaries", "GroupSummary"),
    "aerobee.client_core.master_search": ("AnswerDict", "AnswerList"),
    "aerobee.client_core.messages": ("FoundMessages", "QueueMessages", "SentMessage"),
    "aerobee.client_core.offsets": ("QueueBounds",),
    "aerobee.client_core.prometheus": ("PrometheusMetrics",),
    "aerobee.client_core.recurring": ("RecurringSchedule",),
    "aerobee.client_core.schedules": ("WaitingMessage", "WaitingMessages"),
    "aerobee.client_core.cluster": ("ClusterConnection",),
    "aerobee.client_core.message": ("Message", "ReceivedMessage"),
    "aerobee.client_core.transactions": (
        "OpenTransaction",
        "OpenTransactions",
        "TransactionOutcome",
    ),
    "aerobee.cluster_view.route": ("MessageQueue",),
    "aerobee.consumer_client.answers": ("Batch", "Reject", "RetryLater"),
    "aerobee.consumer_client.blocking": ("BlockingPullConsumer", "BlockingPushConsumer"),
    "aerobee.consumer_client.blocking_simple": ("BlockingSimpleConsumer",),
    "aerobee.consumer_client.filters": ("sql",),
    "aerobee.consumer_client.flow_control": ("FlowLimits",),
    "aerobee.consumer_client.listener": (
        "ConsumeResult",
        "Exhausted",
        "Listener",
        "OnExhausted",
        "Ordering",
    ),
    "aerobee.consumer_client.options": ("ConsumerConfig", "StartFrom"),
    "aerobee.consumer_client.popped_message": ("PoppedMessage",),
    "aerobee.consumer_client.pull_consumer": ("PullConsumer",),
    "aerobee.consumer_client.push_consumer": ("PushConsumer",),
    "aerobee.consumer_client.received_batch": ("ReceivedBatch",),
    "aerobee.consumer_client.retry_schedule": ("RetryPolicy",),
    "aerobee.consumer_client.simple_consumer": ("SimpleConsumer",),
    "aerobee.consumer_client.statistics": (
        "ConsumerStatistics",
        "QueueStatistics",
        "SimpleConsumerStatistics",
    ),
    "aerobee.consumer_client.strategies": (
        "Averagely",
        "AveragelyByCircle",
        "ByConfiguration",
        "ConsistentHash",
        "MachineRoom",
        "MachineRoomNearby",
        "RebalanceStrategy",
        "Sticky",
    ),
    "aerobee.consumer_client.typed": ("BodyRefused", "TypedTopic"),
    "aerobee.client_core.codecs": ("Codec",),
    "aerobee.errors": ("AerobeeError",),
    "aerobee.producer_client.blocking": (
        "BlockingProducer",
        "BlockingTransaction",
        "BlockingTransactionOfSeveral",
    ),
    "aerobee.producer_client.checks": ("CheckAnswer", "CheckTransaction", "TransactionCheck"),
    "aerobee.producer_client.config": ("Compression", "ProducerConfig"),
    "aerobee.producer_client.outbox": ("Outbox", "OutboxRelay"),
    "aerobee.producer_client.producer": ("Producer",),
    "aerobee.producer_client.several": ("TransactionOfSeveral",),
    "aerobee.producer_client.statistics": ("ProducerStatistics",),
    "aerobee.producer_client.receipt": ("Durability", "Receipt", "Receipts", "SendStatus"),
    "aerobee.producer_client.transactions": ("Transaction",),
    "aerobee.runtime.call_context": ("request_scope",),
    "aerobee.runtime.freed_memory": ("keep_freed_memory",),
    "aerobee.rpc.tls_config": ("TlsConfig",),
    "aerobee.domain.sql_filter.expression": ("SqlExpression",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # Else every name would be right.
    # `from aerobee import *` asks for each of them; `import aerobee` still loads none. Type
    # checkers cannot evaluate a computed list: they use the imports above.
    __all__ = [*_MODULE_OF, "errors"]

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("aerobee")
        if name == "errors":
            return import_module("aerobee.errors")
        from aerobee.runtime.lazy_names import load_name

        return load_name(globals(), _MODULE_OF, name)


def __dir__() -> list[str]:
    return sorted({*_MODULE_OF, "errors", "__version__"})
