"""Messages of one queue as received: records end to end, decoded on access.

Owns: the walk over a frame's bytes. It steps from size to size and reads nothing else, so that a
consumer pays only for what it uses; `bodies` is the shortest way to the payload. Also the second
tag filter: the broker filters by the tag's hash, which two tags may share; here the tags are
compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from isal.isal_zlib import crc32

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.process_queue import Entry
from aerobee.runtime.errors import MessageIllegal
from aerobee.store.format.record_layout import (
    BODY_AT,
    CRC_MASK,
    RECORD_SIZE_MIN,
    SYSFLAG_COMPRESSED,
    SYSFLAG_HOSTS_MASK,
)

_SIZE_AND_OFFSET = struct.Struct(">i16xq")
_SIZE_CRC_FLAG_BODY_LENGTH = struct.Struct(">i4xi24xi44xi")
_PLAIN_MASK = SYSFLAG_HOSTS_MASK | SYSFLAG_COMPRESSED


class ReceivedBatch:
    """Some messages of one queue, in order. Iterate it for `ReceivedMessage`s."""

    __slots__ = ("_records", "_tags", "count", "next_offset", "queue")

    def __init__(
        self,
        queue: MessageQueue,
        records: bytes,
        count: int,
        next_offset: int,
        tags: frozenset[str] | None = None,
    ) -> None:
        """`tags` None keeps all; otherwise only messages with one of these tags are visible."""
        self.queue = queue
        self.count = count
        """Records in the batch; with a tag filter it may exceed the number of messages slightly, if
        two tags share a hash."""
        self.next_offset = next_offset
        """Where reading the queue continues after this batch."""
        self._records = records
        self._tags = tags

    def __repr__(self) -> str:
        return f"ReceivedBatch({self.queue}, count={self.count}, next_offset={self.next_offset})"

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self._records)

    @property
    def records(self) -> bytes:
        """The stored records, unfiltered, end to end (docs/internals/store-format.md)."""
        return self._records

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return iter(self.messages())

    def messages(self) -> list[ReceivedMessage]:
        """All messages, each a lazy view of its record.

        Raises:
            MessageIllegal: the bytes are not a sequence of records.
        """
        return [entry[2] for entry in decode_entries(self._records, self.queue, self._tags)]

    def bodies(self) -> list[bytes]:
        """All bodies as sent by the producers.

        Raises:
            CorruptBody: a body's checksum is wrong.
            MessageIllegal: the bytes are not a sequence of records.
        """
        if self._tags is not None:
            return [message.body for message in self.messages()]
        records = self._records
        read = _SIZE_CRC_FLAG_BODY_LENGTH.unpack_from
        position = 0
        end = len(records)
        bodies: list[bytes] = []
        append = bodies.append
        try:
            while position < end:
                size, crc, flags, length = read(records, position)
                if size < RECORD_SIZE_MIN:
                    raise _broken(self.queue, position)
                start = position + BODY_AT
                body = records[start : start + length]
                if flags & _PLAIN_MASK or crc32(body) & CRC_MASK != crc:
                    body = ReceivedMessage.at(records, position, self.queue).body
                append(body)
                position += size
        except (struct.error, ValueError) as error:
            raise _broken(self.queue, position) from error
        if position != end:
            raise _broken(self.queue, position)
        return bodies


def decode_entries(
    records: bytes, queue: MessageQueue, tags: frozenset[str] | None
) -> list[Entry[ReceivedMessage]]:
    """Queue offset, size and message of each record that passes the tags, in order.

    Raises:
        MessageIllegal: the bytes are not a sequence of records.
    """
    read = _SIZE_AND_OFFSET.unpack_from
    message_at = ReceivedMessage.at
    position = 0
    end = len(records)
    entries: list[Entry[ReceivedMessage]] = []
    append = entries.append
    try:
        while position < end:
            size, offset = read(records, position)
            if size < RECORD_SIZE_MIN:
                raise _broken(queue, position)
            append((offset, size, message_at(records, position, queue)))
            position += size
    except (struct.error, ValueError) as error:
        raise _broken(queue, position) from error
    if position != end:
        raise _broken(queue, position)
    if tags is None:
        return entries
    return [entry for entry in entries if entry[2].tag in tags]


def _broken(queue: MessageQueue, position: int) -> MessageIllegal:
    return MessageIllegal(
        f"the broker sent a frame of {queue} that is not a sequence of records at byte "
        f"{position}: it will be fetched again; if that repeats, inspect the store with `aerobee "
        "store dump`"
    )
