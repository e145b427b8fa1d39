"""What one peer may cost, and what it is called when a peer asks for more.

Owns: the figures. `connection` and `server` enforce them: a peer that exceeds one gets the HTTP/2
error for it, and the `LimitObserver` is called once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from aerobee.grpc_core.frames import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    ErrorCode,
)


class Limit(StrEnum):
    """Which limit a peer met."""

    PREFACE = "preface"
    """It sent no HTTP/2 within the time for it."""
    HANDSHAKE = "handshake"
    """Not a limit: it and the server do not agree on TLS, or its certificate is not valid."""
    CONTROL_FRAMES = "control_frames"
    RESETS = "resets"
    """Streams that are reset as soon as they are begun: CVE-2023-44487."""
    HEADER_BLOCK = "header_block"
    """CONTINUATION without end: CVE-2024-27316."""
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
    PROTOCOL = "protocol"
    """Not a limit: it broke the protocol, and the connection ended."""


class LimitObserver(Protocol):
    """Counts and logs what was refused."""

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        """`peer` as gRPC writes it, `ipv4:10.0.0.7:50312`. Must not raise."""
        ...


class ConnectionFailure(Exception):
    """The peer broke the protocol or a limit: GOAWAY, and the connection ends (RFC 9113, 5.4.1)."""

    def __init__(self, code: ErrorCode, reason: str = "", limit: Limit = Limit.PROTOCOL) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bytes, seconds and frames that one connection may take. The defaults are a server's."""

    streams_max: int = 1_024
    streams_per_turn: int = 32
    """Begun in one turn of the event loop, before other connections have theirs: their handlers'
    tasks begin together in the next."""
    turn_s: float = 0.01
    """How long frames may be worked on in one turn; one more after that is worked on to its end."""
    header_list_bytes_max: int = 16_384
    header_block_bytes_max: int = 24_576
    continuations_max: int = 8
    message_bytes_max: int = 4 << 20
    """Of one message we receive."""
    decompressed_bytes_max: int = 4 << 20
    """Of one message that came compressed, where `message_bytes_max` is larger. It is decompressed
    in one turn of the event loop, and 16 MiB of zeros, which come in 16 KiB, took up to 150 ms."""
    sent_message_bytes_max: int = 0
    """Of one message that a server sends; 0: any. A call with a larger one fails."""

    stream_window_bytes: int = 256 << 10
    """What a peer may send on one stream before it is read. Larger messages get more, one after
    the other, out of `extension_bytes_max`."""
    streaming_window_bytes: int = 1 << 20
    """The same for a call that streams its requests."""
    connection_window_bytes: int = 8 << 20
    extension_bytes_max: int = 32 << 20
    """Windows beyond `stream_window_bytes` of all streams together. At least one message always
    gets its window."""
    received_bytes_max: int = 64 << 20
    """What may wait unread: beyond it, the connection's window is given back as it is read."""

    frame_bytes_max: int = FRAME_BYTES_MIN
    """Of frames we receive."""
    send_chunk_bytes: int = FRAME_BYTES_MIN
    """What one stream writes before it is the next stream's turn."""
    send_turn_bytes: int = 1 << 20
    """What all streams write in one turn of the event loop."""
    send_high_water_bytes: int = 1 << 20
    """What the transport holds unsent before nothing more is given to it."""
    stream_backlog_bytes: int = 64 << 10
    """What a stream's writer may be ahead of its peer before it waits."""
    queued_bytes_soft: int = 8 << 20
    """What may wait for windows or the transport before new requests wait, too."""
    queued_bytes_max: int = 64 << 20
    """A server's connection ends when more waits."""
    stall_s: float = 30.0
    """How long a peer may go without reading anything, or stay in the middle of one frame."""

    control_burst: int = 400
    control_per_s: float = 200.0
    """PING, SETTINGS, PRIORITY, empty DATA, small WINDOW_UPDATE and frames of unknown kind, of
    which honest peers send many only when we send much: each message sent fills the budget, and
    each stream gives a little back."""
    reset_burst: int = 1_024
    reset_per_s: float = 500.0
    """Streams that the peer resets as soon as it has begun them, or makes us refuse; each that is
    answered, be it by the first message of several, gives one back. With a burst of `streams_max`
    a peer may cancel all it has begun."""
    reset_free_after_s: float = 0.02
    """Age of a stream whose reset costs nothing: it has counted as one of `streams_max` that long,
    which is what rapid resets evade."""

    preface_s: float = 10.0
    keepalive_s: float = 60.0
    """After this long without a word from the peer it is sent a PING; 0: never."""
    keepalive_timeout_s: float = 20.0
    keepalive_when_idle: bool = True
    """Also on a connection without streams, which some servers punish."""
    idle_s: float = 0.0
    """How long a connection may be without streams before it is drained; 0: any time."""
    age_s: float = 0.0
    """How long a connection lives before it is drained; 0: any time."""
    age_grace_s: float = 30.0
    """How long the streams of a connection that is drained may take to end; 0: any time."""

    def __post_init__(self) -> None:
        """Raises ValueError for figures that cannot work together."""
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
