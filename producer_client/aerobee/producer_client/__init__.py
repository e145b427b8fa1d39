"""Sending messages to an Aerobee cluster; see `Producer`."""

from __future__ import annotations

from aerobee.client_core.message import Message
from aerobee.client_core.transactions import TransactionEnded, TransactionOutcome
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.blocking import BlockingProducer, BlockingTransaction
from aerobee.producer_client.checks import CheckAnswer, CheckTransaction, TransactionCheck
from aerobee.producer_client.config import Compression, ProducerConfig
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.receipt import (
    Durability,
    PartlySent,
    Receipt,
    Receipts,
    SendStatus,
)
from aerobee.producer_client.statistics import ProducerStatistics
from aerobee.producer_client.transactions import Transaction, TransactionUnanswered

__all__ = [
    "BlockingProducer",
    "BlockingTransaction",
    "CheckAnswer",
    "CheckTransaction",
    "Compression",
    "Durability",
    "Message",
    "MessageQueue",
    "PartlySent",
    "Producer",
    "ProducerConfig",
    "ProducerStatistics",
    "Receipt",
    "Receipts",
    "SendStatus",
    "Transaction",
    "TransactionCheck",
    "TransactionEnded",
    "TransactionOutcome",
    "TransactionUnanswered",
]
