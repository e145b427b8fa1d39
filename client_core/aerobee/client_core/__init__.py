"""What producers, consumers and administration share: connection, routes, messages, errors.

Every name is imported on first use: a producer started for a single message needs no
administration.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aerobee.runtime.lazy_names import load_name

if TYPE_CHECKING:
    from aerobee.access.credentials import Credentials, user_credentials
    from aerobee.client_core.admin_access import PolicyAdmin, QuotaAdmin, UserAdmin
    from aerobee.client_core.admin_brokers import BrokerAdmin
    from aerobee.client_core.admin_groups import DeletedGroup, GroupAdmin, GroupQueueState
    from aerobee.client_core.admin_topics import TopicAdmin
    from aerobee.client_core.audit import Audit
    from aerobee.client_core.broker_groups import (
        BrokerGroups,
        BrokerGroupState,
        Remaining,
        UnreadBy,
    )
    from aerobee.client_core.cluster import ClusterConnection
    from aerobee.client_core.dead_letters import DeadLetters, Letter, LetterFilter
    from aerobee.client_core.message import Message, MessageId, ReceivedMessage
    from aerobee.client_core.messages import FoundMessages, Messages, QueueMessages, SentMessage
    from aerobee.client_core.offsets import Offsets, QueueBounds
    from aerobee.client_core.schedules import Schedules, WaitingMessage, WaitingMessages
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
    from aerobee.rpc.tls_config import TlsConfig
    from aerobee.runtime import errors
    from aerobee.runtime.errors import AerobeeError
    from aerobee.runtime.freed_memory import keep_freed_memory

__all__ = [
    "AerobeeError",
    "Audit",
    "BrokerAdmin",
    "BrokerGroupState",
    "BrokerGroups",
    "ClusterConnection",
    "Credentials",
    "DeadLetters",
    "DeletedGroup",
    "Endpoint",
    "FoundMessages",
    "GroupAdmin",
    "GroupQueueState",
    "Letter",
    "LetterFilter",
    "Message",
    "MessageId",
    "MessageQueue",
    "Messages",
    "Offsets",
    "OpenTransaction",
    "OpenTransactions",
    "PolicyAdmin",
    "QueueBounds",
    "QueueMessages",
    "QuotaAdmin",
    "ReceivedMessage",
    "Remaining",
    "RouteChanges",
    "Routes",
    "Schedules",
    "SentMessage",
    "TlsConfig",
    "TopicAdmin",
    "TopicRoute",
    "TransactionEnded",
    "TransactionOutcome",
    "Transactions",
    "UnreadBy",
    "UsedAfterFork",
    "UserAdmin",
    "WaitingMessage",
    "WaitingMessages",
    "errors",
    "keep_freed_memory",
    "user_credentials",
]

# The module of each name; a test keeps this equal to the imports above.
_NAMES = {
    "aerobee.access.credentials": (
        "Credentials",
        "user_credentials",
    ),
    "aerobee.client_core.admin_access": (
        "PolicyAdmin",
        "QuotaAdmin",
        "UserAdmin",
    ),
    "aerobee.client_core.admin_brokers": ("BrokerAdmin",),
    "aerobee.client_core.admin_groups": (
        "DeletedGroup",
        "GroupAdmin",
        "GroupQueueState",
    ),
    "aerobee.client_core.admin_topics": ("TopicAdmin",),
    "aerobee.client_core.audit": ("Audit",),
    "aerobee.client_core.broker_groups": (
        "BrokerGroups",
        "BrokerGroupState",
        "Remaining",
        "UnreadBy",
    ),
    "aerobee.client_core.cluster": ("ClusterConnection",),
    "aerobee.client_core.dead_letters": (
        "DeadLetters",
        "Letter",
        "LetterFilter",
    ),
    "aerobee.client_core.message": (
        "Message",
        "MessageId",
        "ReceivedMessage",
    ),
    "aerobee.client_core.messages": (
        "FoundMessages",
        "Messages",
        "QueueMessages",
        "SentMessage",
    ),
    "aerobee.client_core.offsets": (
        "Offsets",
        "QueueBounds",
    ),
    "aerobee.client_core.schedules": (
        "Schedules",
        "WaitingMessage",
        "WaitingMessages",
    ),
    "aerobee.client_core.transactions": (
        "OpenTransaction",
        "OpenTransactions",
        "TransactionEnded",
        "TransactionOutcome",
        "Transactions",
    ),
    "aerobee.cluster_view.own_process": ("UsedAfterFork",),
    "aerobee.cluster_view.route": (
        "Endpoint",
        "MessageQueue",
        "TopicRoute",
    ),
    "aerobee.cluster_view.routes": (
        "RouteChanges",
        "Routes",
    ),
    "aerobee.runtime.errors": ("AerobeeError",),
    "aerobee.runtime.freed_memory": ("keep_freed_memory",),
    "aerobee.rpc.tls_config": ("TlsConfig",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # Else every name would be right.

    def __getattr__(name: str) -> object:
        if name == "errors":
            return import_module("aerobee.runtime.errors")
        return load_name(globals(), _MODULE_OF, name)


def __dir__() -> list[str]:
    return sorted({*_MODULE_OF, "errors", *globals()})
