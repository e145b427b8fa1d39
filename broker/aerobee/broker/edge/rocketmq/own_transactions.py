"""Transactions of this broker, as official clients end them and are asked about them."""

from __future__ import annotations

from collections.abc import Callable

from aerobee.broker.transactions.ends import Ends
from aerobee.broker.transactions.pending import TransactionName
from aerobee.broker.transactions.questions import Question
from aerobee.rocketmq_api.services.questions import Questions
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.transaction_records import Outcome


class OwnTransactions:
    """Translates for `Ends`."""

    def __init__(self, broker_name: str, ends: Ends, *, is_master: Callable[[], bool]) -> None:
        self.broker_name = broker_name
        self.is_master = is_master
        self._ends = ends

    async def end(
        self, topic: str, transaction_id: str, outcome: Outcome, timeout_ms: int
    ) -> Outcome:
        """See the port."""
        return await self._ends.end(TransactionName(topic, transaction_id), outcome, timeout_ms)


class AskedProducers:
    """Official clients, as `transactions.questions` sees them."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def ask(self, question: Question) -> bool:
        """See `Producers`."""
        half = question.half
        try:
            return self._questions.ask(
                half.topic, half.transaction_id, half.queue_id, question.record
            )
        except RecordCorrupt:
            return False
