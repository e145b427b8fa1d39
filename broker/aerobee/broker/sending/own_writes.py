"""Records that the broker writes itself: a body and a queue in, a place in the log out; or records
made from others.

Owns: turning bodies into records. They enter the log as clients' batches do, through `append`; what
clients may not do, such as sending to a system topic, is up to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aerobee.broker.sending.append import Appender
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageTooLarge
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.batch import BatchIllegal, BatchLimits, check_batch, number_batch
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import TagsCodes
from aerobee.store.format.topic_end import topic_end_properties

_FORMAT_LIMITS: Final = BatchLimits(
    body_bytes_max=(1 << 31) - 1, record_bytes_max=(1 << 31) - 1, batch_bytes_max=(1 << 31) - 1
)
"""Limits for copies. The originals were checked when clients sent them; a copy is slightly larger,
and may be made after the limit was lowered. Refusing it would lose a message."""


class OwnWrites:
    """Appends new records of the broker's own, and copies of others."""

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
        self.publishing = appender.publishing
        """`with publishing`: what is appended inside is published together, at its end."""
        self._clock = clock
        self._store_host = store_host
        self._limits = limits
        self._tags = tags

    @property
    def store_host_ipv6(self) -> bool:
        """The address family of the host stamped into records, which determines their size."""
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
    ) -> Appended:
        """Append one record, `properties` encoded. It is published at once, or at the end of a
        block `with publishing`.

        `reserve`: it may use the reserved space of a full disk; only for small records that are
        needed to free space. `ends_topic`: it marks the end of this topic, and gets the properties
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
        with self.publishing:
            return self._appender.append(
                checked, queue_id=queue_id, reserve=reserve, ends_topic=ends_topic
            )

    def append_copies(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        numbers: Sequence[ProducerRun],
        *,
        reserve: bool = False,
    ) -> Appended:
        """Append all of these records or none, under these producers' numbers if given; inside
        `with publishing`. They may be larger than what clients may send. `reserve`: as in `append`.

        Raises:
            BatchIllegal: nothing was stored; one of them is damaged or cannot be stored.
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
