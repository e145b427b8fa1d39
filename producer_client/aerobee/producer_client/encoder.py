"""A batch as records: compressed, then encoded. Pure.

Records are encoded once per batch; a retry at a broker whose host address has another length
encodes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.producer_client.accumulator import Batch, EncodedBatch
from aerobee.producer_client.config import Compression, ProducerConfig
from aerobee.store.format.compression import CompressionKind, compress
from aerobee.store.format.record import HostAddress, encode_batch_parts, encode_record

OFF_LOOP_BYTES_MIN = 256 * 1024
"""From this many bytes to compress, a thread does it, so that the loop is not blocked for
milliseconds."""

_KINDS = {
    Compression.ZLIB: CompressionKind.ZLIB,
    Compression.LZ4: CompressionKind.LZ4,
    Compression.ZSTD: CompressionKind.ZSTD,
}


class Encoder:
    """Encodes the batches of one producer."""

    def __init__(self, config: ProducerConfig, born_host: HostAddress) -> None:
        self._born_host = born_host
        self._compression = Compression(config.compression)
        self._compress_bytes_min = config.compress_bytes_min

    def is_long_work(self, batches: Sequence[Batch]) -> bool:
        """Whether encoding would block an event loop for milliseconds."""
        total = 0
        for batch in batches:
            if batch.encoded is None and self._is_compressible(batch):
                total += batch.size
        return total >= OFF_LOOP_BYTES_MIN

    def _is_compressible(self, batch: Batch) -> bool:
        return (
            self._compression is not Compression.NONE
            and batch.size >= self._compress_bytes_min
            and max(map(len, batch.bodies)) >= self._compress_bytes_min
        )

    def encode_all(self, batches: Sequence[Batch], *, store_host_ipv6: bool) -> list[EncodedBatch]:
        """`encode` for each."""
        return [self.encode(batch, store_host_ipv6=store_host_ipv6) for batch in batches]

    def encode(self, batch: Batch, *, store_host_ipv6: bool) -> EncodedBatch:
        """The batch as records; earlier results are reused.

        Changes nothing, so it may run in a thread while the batch is sealed. The messages were
        checked before; a ValueError from here is a bug of this package.
        """
        known = batch.encoded
        if known is not None and known.store_host_ipv6 == store_host_ipv6:
            return known
        bodies, sys_flags = self._compressed(batch)
        topic = batch.queue.topic.encode()
        if not batch.flags:
            parts, sizes = encode_batch_parts(
                topic=topic,
                bodies=bodies,
                properties=batch.properties,
                born_timestamp_ms=batch.born_timestamp_ms,
                born_host=self._born_host,
                sys_flags=sys_flags,
                store_host_ipv6=store_host_ipv6,
            )
            return EncodedBatch(parts, sizes, store_host_ipv6)
        records = [
            encode_record(
                topic=topic,
                body=body,
                properties=batch.properties[index],
                born_timestamp_ms=batch.born_timestamp_ms,
                born_host=self._born_host,
                flag=batch.flags.get(index, 0),
                sys_flag=sys_flags if isinstance(sys_flags, int) else sys_flags[index],
                store_host_ipv6=store_host_ipv6,
            )
            for index, body in enumerate(bodies)
        ]
        sizes = [len(record) for record in records]
        return EncodedBatch(records, sizes, store_host_ipv6)

    def _compressed(self, batch: Batch) -> tuple[Sequence[bytes], int | Sequence[int]]:
        minimum = self._compress_bytes_min
        bodies = batch.bodies
        if not self._is_compressible(batch):
            return bodies, 0
        kind = _KINDS[self._compression]
        smaller: list[bytes] = []
        sys_flags: list[int] = []
        for body in bodies:
            packed = compress(body, kind) if len(body) >= minimum else body
            is_smaller = len(packed) < len(body)
            smaller.append(packed if is_smaller else body)
            sys_flags.append(kind.sys_flag if is_smaller else 0)
        return smaller, sys_flags
