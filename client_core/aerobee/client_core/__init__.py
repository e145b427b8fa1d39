"""What producers, consumers and administration share: connection, routes, messages, errors."""

from __future__ import annotations

from aerobee.access.credentials import Credentials, user_credentials
from aerobee.client_core.access import Access
from aerobee.client_core.admin import Admin, GroupQueueState, GroupState
from aerobee.client_core.audit import Audit
from aerobee.client_core.broker_groups import (
    BrokerGroups,
    BrokerGroupState,
    Remaining,
    UnreadBy,
)
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.dead_letters import DeadLetters, Letter, LetterFilter
from aerobee.client_core.deletions import DeletedGroup, Deletions
from aerobee.client_core.message import Message, MessageId, ReceivedMessage
from aerobee.client_core.messages import FoundMessages, Messages, QueueMessages
from aerobee.client_core.offsets import Offsets, QueueBounds
from aerobee.client_core.schedules import Schedules, WaitingMessage, WaitingMessages
from aerobee.client_core.topics import Topics
from aerobee.client_core.transactions import (
    OpenTransaction,
    OpenTransactions,
    TransactionEnded,
    TransactionOutcome,
    Transactions,
)
from aerobee.cluster_view.own_process import UsedAfterFork
from aerobee.cluster_view.route import Endpoint, MessageQueue, TopicRoute
from aerobee.cluster_view.routes import RouteChanges, Routes
from aerobee.runtime import errors
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.freed_memory import keep_freed_memory
from aerobee.runtime.tls_config import TlsConfig

__all__ = [
    "Access",
    "Admin",
    "AerobeeError",
    "Audit",
    "BrokerGroupState",
    "BrokerGroups",
    "ClusterConnection",
    "Credentials",
    "DeadLetters",
    "DeletedGroup",
    "Deletions",
    "Endpoint",
    "FoundMessages",
    "GroupQueueState",
    "GroupState",
    "Letter",
    "LetterFilter",
    "Message",
    "MessageId",
    "MessageQueue",
    "Messages",
    "Offsets",
    "OpenTransaction",
    "OpenTransactions",
    "QueueBounds",
    "QueueMessages",
    "ReceivedMessage",
    "Remaining",
    "RouteChanges",
    "Routes",
    "Schedules",
    "TlsConfig",
    "TopicRoute",
    "Topics",
    "TransactionEnded",
    "TransactionOutcome",
    "Transactions",
    "UnreadBy",
    "UsedAfterFork",
    "WaitingMessage",
    "WaitingMessages",
    "errors",
    "keep_freed_memory",
    "user_credentials",
]
