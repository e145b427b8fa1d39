"""PURE: messages that wait until their transaction ends.

Limits, permissions and queues were checked for the topic that the client named: the records made
here go to a system topic, to which no client can send. The sender's own properties are kept, plus
those that the message needs to find its topic again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from aerobee.broker.sending.delays import WaitingBatch, may_ask_for_delay
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchFault, BatchIllegal
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.properties import PropertyName, find_property
from aerobee.store.format.record_layout import RecordIllegal
from aerobee.store.format.record_rewrite import rewrite_batch
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import (
    HalfIllegal,
    HalfMessage,
    half_at,
    half_properties,
)

HALF_QUEUE = 0
_NOWHERE = (0, 0, 0, 0)
_UNIQ_KEY = PropertyName.UNIQ_KEY.encode()


class HalfMemory(Protocol):
    """What is known of half messages; implemented in `transactions.known.KnownHalves`."""

    def check_takes(self, count: int = 1) -> None:
        """Raises NotMaster: this master does not yet know what is stored. Busy: too many
        transactions are open for this many more."""
        ...

    def standing(self, topic: str, message_id: str, content: str) -> tuple[str, Appended | None]:
        """The transaction of a message with this id and content, and where its half message is
        stored, as far back as is remembered."""
        ...

    def stored(self, half: HalfMessage, appended: Appended) -> None:
        """It has just been appended."""
        ...


class HalfBatch(NamedTuple):
    """`batch` goes to the half topic. `messages` are its messages, which have no place yet, by the
    ids that their senders gave them."""

    batch: WaitingBatch
    messages: list[tuple[str, HalfMessage]]


def half_batch(
    batch: CheckedBatch, queue_ids: Sequence[int], transaction_ids: Sequence[str] = ()
) -> HalfBatch:
    """The half messages of a batch whose records are for these queues. `transaction_ids` empty:
    each message's id.

    Raises BatchIllegal: a record has no message id, asks for a delay, or has no room for the
    properties it needs to wait.
    """
    if may_ask_for_delay(batch.properties.joined):
        raise BatchIllegal(
            BatchFault.TRANSACTION,
            -1,
            "a message of a transaction cannot be delayed; remove the delay, or send it without "
            "a transaction",
        )
    properties: list[bytes] = []
    messages: list[tuple[str, HalfMessage]] = []
    for index, (data, queue_id) in enumerate(zip(batch.properties, queue_ids, strict=True)):
        transaction_id = transaction_ids[index] if transaction_ids else ""
        try:
            properties.append(
                half_properties(
                    data, topic=batch.topic, queue_id=queue_id, transaction_id=transaction_id
                )
            )
        except HalfIllegal as error:
            raise BatchIllegal(BatchFault.TRANSACTION, index, str(error)) from None
        except RecordIllegal as error:
            raise BatchIllegal(
                BatchFault.PROPERTIES_TOO_LARGE,
                index,
                f"with the properties that it needs to wait, {error}",
            ) from None
        message_id = (find_property(data, 0, len(data), _UNIQ_KEY) or b"").decode()
        record = Record(batch.buffer, int(batch.starts[index]))
        half = half_at(_NOWHERE, record, batch.topic, queue_id, transaction_id or message_id)
        messages.append((message_id, half))
    records, sizes = rewrite_batch(batch, topic=HALF_TOPIC.encode(), properties=properties)
    return HalfBatch(WaitingBatch(HALF_TOPIC, HALF_QUEUE, records, sizes, []), messages)
