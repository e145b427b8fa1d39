"""The check before a batch is appended: is it already stored, and where?

The windows know queue offsets; a record's position in the log is in its queue entry, whether that
is in the queue or still on its way there.
"""

from __future__ import annotations

from typing import Self

from aerobee.runtime.errors import MessageNotFound, OutOfSequence
from aerobee.store.engine.dispatcher import Dispatcher
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.producers.producer_windows import ProducerName, ProducerWindows
from aerobee.store.engine.producers.window import AlreadyStored
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.recovery.recover import Recovered
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
)


class Producers:
    """Loop thread only."""

    def __init__(
        self,
        windows: ProducerWindows,
        *,
        files: FileCache,
        log: CommitLog,
        queues: QueueSet,
        dispatcher: Dispatcher,
    ) -> None:
        self.windows = windows
        self._files = files
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher

    @classmethod
    def of(cls, recovered: Recovered, dispatcher: Dispatcher) -> Self:
        """Made from what recovery returned."""
        return cls(
            recovered.windows,
            files=recovered.files,
            log=recovered.log,
            queues=recovered.queues,
            dispatcher=dispatcher,
        )

    def standing(
        self, topic: str, queue_id: int, producer_id: int, sequence: int, count: int
    ) -> AlreadyStored:
        """How much of a batch is stored; if nothing is, it is new and may be appended.

        Raises OutOfSequence: it reaches back too far, or was batched differently before.
        """
        name = ProducerName(topic, queue_id, producer_id)
        standing = self.windows.standing(name, sequence, count)
        if standing is None:
            raise OutOfSequence(
                f"message {sequence} of producer {producer_id:010x} to queue {queue_id} of "
                f"{topic} is older than what the broker remembers, or was sent before in another "
                "batch: whether it is stored is unknown; send it again with a new producer if a "
                "duplicate does no harm"
            )
        return standing

    def place(self, topic: str, queue_id: int, queue_offset: int, count: int) -> Appended:
        """The location of `count` stored records; may wait for the disk if they are old.

        Raises OutOfSequence if retention has removed them; StoreFailed.
        """
        first = self._entry(topic, queue_id, queue_offset)
        last = self._entry(topic, queue_id, queue_offset + count - 1)
        if first is None or last is None:
            raise _removed(topic, queue_id, queue_offset)
        position = first[0]
        try:
            head = self._log.read(((position, RECORD_SIZE_MIN),))
        except MessageNotFound as error:
            raise _removed(topic, queue_id, queue_offset) from error
        return Appended(queue_offset, position, last[0] + last[1], _store_timestamp_ms(head))

    def _entry(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Log offset and size of a record."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue_offset < queue.min_offset:
            return None
        if queue_offset < queue.end:
            entry = queue.read_entries(self._files, queue_offset, 1)
        else:
            at = (queue_offset - queue.end) * ENTRY_SIZE
            entry = self._dispatcher.pending_entries(queue)[at : at + ENTRY_SIZE]
        return None if len(entry) < ENTRY_SIZE else unpack_entry(entry)[:2]


def _store_timestamp_ms(head: bytes) -> int:
    """Of the record that begins so."""
    sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0)
    return int.from_bytes(head[at : at + 8], "big")


def _removed(topic: str, queue_id: int, queue_offset: int) -> OutOfSequence:
    return OutOfSequence(
        f"the message is stored at offset {queue_offset} of queue {queue_id} of {topic}, but "
        "retention has removed it"
    )
