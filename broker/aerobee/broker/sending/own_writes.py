"""Records that the broker writes itself: a body and a queue in, a place in the log out; or records
that it made of others.

Owns: the turn of bodies into records. They enter the log as clients' batches do, by `append`; what
clients may not do, such as sending to a system topic, is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.broker.sending.append import Appender
from aerobee.broker.store.statistics import Appended
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageTooLarge
from aerobee.store_format.batch import BatchIllegal, BatchLimits, check_batch, number_batch
from aerobee.store_format.producer_number import ProducerRun
from aerobee.store_format.record_encode import encode_record
from aerobee.store_format.record_layout import HostAddress
from aerobee.store_format.tags import TagsCodes
from aerobee.store_format.topic_end import topic_end_properties

_FORMAT_LIMITS: Final = BatchLimits(
    body_bytes_max=(1 << 31) - 1, record_bytes_max=(1 << 31) - 1, batch_bytes_max=(1 << 31) - 1
)
"""Of copies. What clients may send was checked when the originals came; a copy is a little larger,
and may be made after the limit was lowered. To refuse it then would lose a message."""


class OwnWrites:
    """Appends records that are born here and now, and copies of others."""

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        *,
        store_host: HostAddress,
        limits: BatchLimits,
        tags: TagsCodes,
    ) -> None:
        self._appender = appender
        self._clock = clock
        self._store_host = store_host
        self._limits = limits
        self._tags = tags

    @property
    def store_host_ipv6(self) -> bool:
        """The family of the host that is stamped into records, for which they need room."""
        return self._store_host.is_ipv6

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        properties: bytes = b"",
        reserve: bool = False,
        ends_topic: str = "",
        is_last: bool = True,
    ) -> Appended:
        """One record, `properties` encoded. It goes its way at once; unless it `is_last`, the
        caller calls `publish` in the same turn.

        `reserve`: it may take the space that a full disk keeps back; only for what is little
        and needed to free space. `ends_topic`: it is the end of this topic, and has the properties
        that say so; see `MessageStore.append`.

        Raises:
            NotMaster: nothing was stored; this replica may not act as master now.
            NotWritable, Busy, ShuttingDown, MessageTooLarge: nothing was stored.
            StoreFailed: the broker ends.
        """
        record = encode_record(
            topic=topic.encode(),
            body=body,
            properties=topic_end_properties(ends_topic) if ends_topic else properties,
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._store_host,
            store_host_ipv6=self._store_host.is_ipv6,
        )
        try:
            checked = check_batch(
                record,
                [len(record)],
                topic=topic,
                limits=self._limits,
                store_host_ipv6=self._store_host.is_ipv6,
                tags=self._tags,
            )
        except BatchIllegal as error:
            raise MessageTooLarge(f"a record of topic {topic} is invalid: {error}") from error
        appended = self._appender.append(
            checked, queue_id=queue_id, reserve=reserve, ends_topic=ends_topic
        )
        if is_last:
            self._appender.publish()
        return appended

    def append_copies(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        numbers: Sequence[ProducerRun],
        *,
        reserve: bool = False,
    ) -> Appended:
        """All of these records, under these producers' numbers if any, or none; the caller calls
        `publish` in the same turn. They may be larger than what clients may send. `reserve`: as in
        `append`.

        Raises:
            BatchIllegal: nothing was stored; one of them is damaged, or cannot be stored.
            AerobeeError: as `append`.
        """
        batch = check_batch(
            b"".join(records),
            [len(record) for record in records],
            topic=topic,
            limits=_FORMAT_LIMITS,
            store_host_ipv6=self._store_host.is_ipv6,
            tags=self._tags,
        )
        if numbers:
            number_batch(batch, numbers)
        return self._appender.append(batch, queue_id=queue_id, reserve=reserve)

    def publish(self) -> None:
        """What was appended goes its way. Raises StoreFailed."""
        self._appender.publish()
