"""What one peer may cost, and the name of each limit that a peer can exceed.

Owns: the numbers. `connection` and `server` enforce them: a peer that exceeds one gets the HTTP/2
error for it, and the `LimitObserver` is called once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from aerobee.rpc.core.frames import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
)


class Limit(StrEnum):
    """The limit that a peer exceeded."""

    PREFACE = "preface"
    """It sent no HTTP/2 preface in time."""
    HANDSHAKE = "handshake"
    """Not a limit: the peer and the server do not agree on TLS, or its certificate is not valid."""
    HANDSHAKES = "handshakes"
    """Too many TLS handshakes at once: the oldest was ended."""
    CONTROL_FRAMES = "control_frames"
    RESETS = "resets"
    """Streams reset as soon as they are begun: CVE-2023-44487."""
    HEADER_BLOCK = "header_block"
    """Endless CONTINUATION: CVE-2024-27316."""
    HEADER_LIST = "header_list"
    STREAMS = "streams"
    CONNECTIONS = "connections"
    MESSAGE = "message"
    SLOW_READER = "slow_reader"
    SLOW_SENDER = "slow_sender"
    """It began a frame and did not finish it in time."""
    CONNECTION_MEMORY = "connection_memory"
    PROCESS_MEMORY = "process_memory"
    KEEPALIVE = "keepalive"
    """It did not answer a PING."""
    BUG = "bug"
    """Not a limit: this side failed at what the peer had sent, and the connection ended."""
    PROTOCOL = "protocol"
    """Not a limit: it broke the protocol, and the connection ended."""


class LimitObserver(Protocol):
    """Counts and logs what was refused."""

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        """`peer` in gRPC's notation, `ipv4:10.0.0.7:50312`. Must not raise."""
        ...


class ConnectionFailure(Exception):
    """The peer broke the protocol or exceeded a limit: GOAWAY, and the connection ends (RFC 9113,
    5.4.1)."""

    def __init__(self, code: ErrorCode, reason: str = "", limit: Limit = Limit.PROTOCOL) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bytes, seconds and frames that one connection may use. The defaults are for a server."""

    streams_max: int = 1_024
    streams_per_turn: int = 32
    """Begun in one turn of the event loop, before other connections get theirs: their handlers'
    tasks begin together in the next."""
    turn_s: float = 0.01
    """How long frames may be processed in one turn; the frame being processed at that time is
    finished."""
    header_list_bytes_max: int = 16_384
    header_block_bytes_max: int = 24_576
    continuations_max: int = 8
    message_bytes_max: int = 4 << 20
    """Per message that we receive."""
    decompressed_bytes_max: int = 4 << 20
    """Per message that arrived compressed, if `message_bytes_max` is larger. It is decompressed in
    one turn of the event loop, and 16 MiB of zeros, which arrive in 16 KiB, took up to 150 ms."""
    sent_message_bytes_max: int = 0
    """Per message that a server sends; 0: any size. A call with a larger one fails."""

    stream_window_bytes: int = 256 << 10
    """What a peer may send on one stream before it is read. Larger messages get more, one after
    another, from `extension_bytes_max`."""
    streaming_window_bytes: int = 1 << 20
    """The same for a call with streamed requests."""
    connection_window_bytes: int = 8 << 20
    extension_bytes_max: int = 32 << 20
    """The sum of windows beyond `stream_window_bytes`, over all streams. At least one message
    always gets its window."""
    received_bytes_max: int = 64 << 20
    """What may wait unread: beyond this, the connection's window is returned only as data is read.
    """

    frame_bytes_max: int = 256 << 10
    """Per frame that we receive: a batch in one frame costs one frame. It is handled as it
    arrives."""
    send_chunk_bytes: int = 256 << 10
    """What one stream writes before the next stream's turn; no more than the peer takes in a
    frame."""
    send_turn_bytes: int = 1 << 20
    """What all streams write in one turn of the event loop."""
    send_high_water_bytes: int = 1 << 20
    """How much the transport holds unsent before it is given no more."""
    stream_backlog_bytes: int = 64 << 10
    """How far a stream's writer may get ahead of its peer before it waits."""
    queued_bytes_soft: int = 8 << 20
    """How much may wait for windows or the transport before new requests wait too."""
    queued_bytes_max: int = 64 << 20
    """Beyond this, a server ends the connection."""
    stall_s: float = 30.0
    """How long a peer may read nothing, or leave a frame incomplete."""

    control_burst: int = 400
    control_per_s: float = 200.0
    """PING, SETTINGS, PRIORITY, empty DATA, small WINDOW_UPDATE and frames of unknown kind, of
    which honest peers send many only when we send a lot: each message sent refills the budget, and
    each stream gives a little back."""
    reset_burst: int = 1_024
    reset_per_s: float = 500.0
    """Streams that the peer resets as soon as it has begun them, or forces us to refuse; each one
    that is answered, even with the first of several messages, gives one back. With a burst of
    `streams_max`, a peer may cancel everything it has begun."""
    reset_free_after_s: float = 0.02
    """Age at which resetting a stream costs nothing: it has counted towards `streams_max` for that
    long, which is what rapid resets avoid."""

    preface_s: float = 10.0
    keepalive_s: float = 60.0
    """After this long without any input, the peer is sent a PING; 0: never."""
    keepalive_timeout_s: float = 20.0
    keepalive_when_idle: bool = True
    """Also on a connection without streams, which some servers penalise."""
    idle_s: float = 0.0
    """How long a connection may have no streams before it is drained; 0: unlimited."""
    age_s: float = 0.0
    """How long a connection lives before it is drained; 0: unlimited."""
    age_grace_s: float = 30.0
    """How long the streams of a draining connection may take to end; 0: unlimited."""

    def __post_init__(self) -> None:
        """Raises ValueError for values that cannot work together."""
        wrong = [
            name
            for name, is_right in (
                ("streams_max", self.streams_max >= 1),
                ("frame_bytes_max", FRAME_BYTES_MIN <= self.frame_bytes_max <= FRAME_BYTES_MAX),
                ("send_chunk_bytes", 1 <= self.send_chunk_bytes <= FRAME_BYTES_MAX),
                ("send_turn_bytes", self.send_turn_bytes >= self.send_chunk_bytes),
                ("stream_window_bytes", 1 <= self.stream_window_bytes <= WINDOW_MAX),
                (
                    "connection_window_bytes",
                    WINDOW_DEFAULT <= self.connection_window_bytes <= WINDOW_MAX,
                ),
                ("queued_bytes_max", self.queued_bytes_max >= self.queued_bytes_soft),
                ("message_bytes_max", 0 <= self.message_bytes_max < WINDOW_MAX - 5),
            )
            if not is_right
        ]
        if wrong:
            raise ValueError(f"limits out of range: {', '.join(wrong)}")
