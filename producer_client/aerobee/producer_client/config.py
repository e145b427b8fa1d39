"""How a producer behaves; one frozen value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from aerobee.client_core.defaults import check_whole_number
from aerobee.runtime.busy_poll import BUSY_POLL_US_MAX
from aerobee.runtime.errors import InvalidArgument

KIB = 1024
MIB = 1024 * KIB


class Compression(StrEnum):
    """How large bodies are compressed."""

    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Limits and times of a producer.

    >>> ProducerConfig(linger_ms=-1)
    Traceback (most recent call last):
    ...
    aerobee.errors.InvalidArgument: linger_ms must be at least 0, not -1
    """

    send_timeout_ms: int = 10_000
    """From `send` to its receipt, including waiting for room and all retries."""
    retries_max: int = 2
    """Further attempts after a broker failed. Attempts to reach any broker at all do not count, nor
    do those refused before anything was stored, for example with a full disk."""
    linger_ms: int = 0
    """How long a batch waits for more; 0: only for sends of the same moment."""
    batch_bytes_max: int = 512 * KIB
    """A batch of this size is sent; a single larger message is a batch of its own."""
    buffered_bytes_max: int = 64 * MIB
    """Messages without a receipt; beyond this, `send` waits."""
    inflight_bytes_max: int = 8 * MIB
    """Sent to one broker and not yet acknowledged; the rest waits in the client."""
    message_body_bytes_max: int = 4 * MIB
    """Larger bodies are refused; brokers have the same limit by default."""
    compression: Compression | Literal["none", "zlib", "lz4", "zstd"] = Compression.ZLIB
    compress_bytes_min: int = 4_096
    """Bodies of at least this size are compressed, and sent so if that made them smaller."""
    close_timeout_ms: int = 3_000
    """How long `close` waits for outstanding receipts."""
    idempotent: bool = True
    """Messages are numbered, so that brokers store each one once, however often it has to be sent.
    A batch whose outcome is unknown is then sent again only to its own queue."""
    create_missing_topics: bool = True
    """Ask the nameserver to create unknown topics, if its policy allows it."""
    await_cluster_ms: int = 10_000
    """How long a send retries, within its own time limit, while no nameserver answers or no broker
    is registered; 0: it fails at once."""
    busy_poll_us: int = 0
    """How long, in microseconds, a producer that has just received an acknowledgement polls for
    more before its event loop sleeps, as long as they follow each other that closely; 0: it always
    sleeps; at most 1,000. With 500 here and in the broker's `grpc.busy_poll_us`, a send that waits
    for its receipt takes about half the time, and its event loop a whole core meanwhile. Without
    effect where the process may use fewer than two cores."""

    def __post_init__(self) -> None:
        for name, minimum in (
            ("send_timeout_ms", 1),
            ("retries_max", 0),
            ("linger_ms", 0),
            ("batch_bytes_max", 1),
            ("buffered_bytes_max", 1),
            ("inflight_bytes_max", 1),
            ("message_body_bytes_max", 1),
            ("compress_bytes_min", 1),
            ("close_timeout_ms", 0),
            ("await_cluster_ms", 0),
            ("busy_poll_us", 0),
        ):
            check_whole_number(name, getattr(self, name), minimum=minimum)
        if self.batch_bytes_max > 4 * MIB:
            raise InvalidArgument(
                f"batch_bytes_max must be at most 4 MiB, the brokers' limit, "
                f"not {self.batch_bytes_max}"
            )
        if self.busy_poll_us > BUSY_POLL_US_MAX:
            raise InvalidArgument(
                f"busy_poll_us must be at most {BUSY_POLL_US_MAX:,}, not {self.busy_poll_us}"
            )
        try:
            object.__setattr__(self, "compression", Compression(self.compression))
        except ValueError:
            raise InvalidArgument(
                f"compression must be one of {', '.join(Compression)}, not {self.compression!r}"
            ) from None
