"""What becomes of a half message's record: the message that is delivered, if it can be."""

from __future__ import annotations

from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.errors import (
    AerobeeError,
    Busy,
    MessageIllegal,
    NotWritableTopic,
    TopicNotFound,
)
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.delayed_records import Moved
from aerobee.store.format.record_layout import RecordCorrupt, RecordIllegal
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import HalfIllegal, HalfMessage, committed_record


class Deliverable:
    """Half messages as they are delivered."""

    def __init__(self, topics: TopicTable, writes: OwnWrites) -> None:
        self._topics = topics
        self._writes = writes

    def message(self, half: HalfMessage, data: bytes) -> Moved:
        """The message to deliver; `data` is the half message's record. Raises AerobeeError: it
        cannot be delivered."""
        topic = self._topics.get(half.topic)
        if topic is None:
            raise TopicNotFound(
                f"topic {half.topic} was deleted while the transaction was open: create it again, "
                "or roll the transaction back"
            )
        if half.topic in self._topics.ending:
            raise Busy(f"topic {half.topic} is being emptied; try again in a moment")
        if topic.has_batch_queues:
            raise NotWritableTopic(
                f"topic {half.topic} keeps batches as one message each, which this broker cannot "
                "write"
            )
        try:
            return committed_record(
                half_record(half, data),
                store_host_ipv6=self._writes.store_host_ipv6,
                target=(half.topic, half.queue_id),
            )
        except (RecordCorrupt, RecordIllegal, HalfIllegal) as error:
            raise undeliverable(half, str(error)) from None


def half_record(half: HalfMessage, data: bytes) -> Record:
    """Raises AerobeeError: it is another one."""
    try:
        record = Record(data, 0, len(data))
        if record.physical_offset == half.position and record.queue_offset == half.offset:
            return record
    except RecordCorrupt as error:
        raise undeliverable(half, str(error)) from None
    raise undeliverable(half, f"it is not the record at {half.position}")


def undeliverable(half: HalfMessage, reason: str) -> AerobeeError:
    """Its message cannot be delivered."""
    return MessageIllegal(
        f"the message of transaction {half.transaction_id} cannot be delivered: {reason}; roll the "
        "transaction back"
    )
