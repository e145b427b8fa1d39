"""What a producer gets for a stored message: where it is and what was promised.

Receipts are views of one acknowledgement. A batch of a thousand messages has one StoredBatch and
makes a Receipt only for the message that is asked about.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import overload

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.message_id import offset_message_id
from aerobee.store.format.properties import VALUE_END, PropertyName, find_property
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import HostAddress

UNIQUE_KEY_AT = len(PropertyName.UNIQ_KEY) + 1


class SendStatus(StrEnum):
    """How far the store got. In every case the message is stored and must not be sent again."""

    OK = "ok"
    FLUSH_DISK_TIMEOUT = "flush_disk_timeout"
    FLUSH_SLAVE_TIMEOUT = "flush_slave_timeout"
    SLAVE_NOT_AVAILABLE = "slave_not_available"


class Durability(StrEnum):
    """What a stored message survives."""

    UNSPECIFIED = "unspecified"
    PAGE_CACHE = "page_cache"
    """The end of the broker process, not a power failure."""
    FSYNCED = "fsynced"
    """A power failure of the broker's machine."""
    REPLICATED = "replicated"
    """The loss of the broker's machine: in the page cache of the in-sync set."""
    REPLICATED_FSYNCED = "replicated_fsynced"


class StoredBatch:
    """One acknowledged batch: what all its receipts share."""

    __slots__ = (
        "base_physical_offset",
        "base_queue_offset",
        "durability",
        "properties",
        "queue",
        "sizes",
        "status",
        "store_host",
        "store_timestamp_ms",
        "transaction_id",
        "waits",
    )

    def __init__(
        self,
        *,
        queue: MessageQueue,
        status: SendStatus,
        durability: Durability,
        base_queue_offset: int,
        base_physical_offset: int,
        store_timestamp_ms: int,
        store_host: HostAddress,
        properties: Sequence[bytes],
        sizes: Sequence[int],
        waits: bool = False,
        transaction_id: str = "",
    ) -> None:
        """`waits`: its messages are delivered later. `transaction_id`: the broker's, if it is one
        message of a transaction."""
        self.transaction_id = transaction_id
        self.waits = waits
        self.queue = queue
        self.status = status
        self.durability = durability
        self.base_queue_offset = base_queue_offset
        self.base_physical_offset = base_physical_offset
        self.store_timestamp_ms = store_timestamp_ms
        self.store_host = store_host
        self.properties = properties
        self.sizes = sizes


class Receipt:
    """The proof that a message is stored."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: StoredBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def message_id(self) -> str:
        """The id that the producer gave the message: its UNIQ_KEY property."""
        properties = self._batch.properties[self._index]
        return properties[UNIQUE_KEY_AT : properties.index(VALUE_END)].decode()

    @property
    def transaction_id(self) -> str:
        """Of a message of a transaction: by default its id."""
        return self._batch.transaction_id or self.message_id

    @property
    def offset_message_id(self) -> str:
        """Where the message is in the broker's log; see MessageId. Empty for a delayed message: it
        moves when it is delivered."""
        if self._batch.waits:
            return ""
        offset = self._batch.base_physical_offset + sum(self._batch.sizes[: self._index])
        return offset_message_id(self._batch.store_host, offset)

    @property
    def queue(self) -> MessageQueue:
        return self._batch.queue

    @property
    def queue_offset(self) -> int:
        """The message's place in the queue. -1 for a delayed message: it gets one on delivery."""
        return -1 if self._batch.waits else self._batch.base_queue_offset + self._index

    @property
    def recall_handle(self) -> str:
        """Names the message until it is delivered, for `Schedules`; empty unless it was sent with a
        time."""
        batch = self._batch
        properties = batch.properties[self._index]
        if not batch.waits:
            return ""
        deliver_ms = find_property(properties, 0, len(properties), b"TIMER_DELIVER_MS")
        if deliver_ms is None:
            return ""
        broker_name = batch.queue.broker_name
        handle = RecallHandle(batch.queue.topic, broker_name, int(deliver_ms), self.message_id)
        return handle.encode()

    @property
    def status(self) -> SendStatus:
        return self._batch.status

    @property
    def durability(self) -> Durability:
        return self._batch.durability

    @property
    def store_timestamp_ms(self) -> int:
        return self._batch.store_timestamp_ms

    def __repr__(self) -> str:
        return (
            f"Receipt({self.queue}, offset={self.queue_offset}, id={self.message_id}, "
            f"{self.status.value}, {self.durability.value})"
        )


class Receipts(Sequence[Receipt]):
    """The receipts of one `send_batch`, in the order of its messages; each is created on access."""

    __slots__ = ("_part_ends", "_parts", "_positions")

    def __init__(
        self, parts: Sequence[StoredBatch], positions: Sequence[int] | None = None
    ) -> None:
        """`parts` end to end contain all messages; `positions` gives each message's index among
        them, None: in order."""
        self._parts = parts
        self._part_ends = list(accumulate(len(part.sizes) for part in parts))
        self._positions = positions

    def __len__(self) -> int:
        return self._part_ends[-1] if self._part_ends else 0

    @overload
    def __getitem__(self, index: int) -> Receipt: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Receipt]: ...

    def __getitem__(self, index: int | slice) -> Receipt | Sequence[Receipt]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        position = index if self._positions is None else self._positions[index]
        part = bisect_right(self._part_ends, position)
        start = self._part_ends[part - 1] if part else 0
        return Receipt(self._parts[part], position - start)

    @property
    def batches(self) -> Sequence[StoredBatch]:
        """The stored batches of the receipts."""
        return self._parts

    def __repr__(self) -> str:
        return f"Receipts({len(self)} messages in {len(self._parts)} batches)"


class PartlySent(AerobeeError):
    """Some messages of a `send_batch` are stored, others are not; raised by clients only.

    `__cause__` is the first failure. `receipts` has None for each message that was not stored, or
    whose outcome is unknown.
    """

    __module__ = "aerobee.errors"

    def __init__(self, message: str, *, receipts: Sequence[Receipt | None] = ()) -> None:
        super().__init__(message)
        self.receipts = receipts
