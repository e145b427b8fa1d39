"""What the service needs of other nodes."""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.message import Message

from aerobee.cluster_view.methods import Method

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
Q_contra = TypeVar("Q_contra", bound=Message, contravariant=True)
R_co = TypeVar("R_co", bound=Message, covariant=True)


class AnswerStream(Protocol[R_co]):
    """Answers of another node."""

    async def read(self) -> R_co | None:
        """None: it has ended. Raises Unreachable, DeadlineExceeded, AerobeeError."""
        ...

    def cancel(self) -> None: ...


class Peers(Protocol):
    """Other nodes; `Channels` is one."""

    async def call(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int = 3_000,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> R:
        """Raises Unreachable, DeadlineExceeded, AerobeeError."""
        ...


class PeerStream(Protocol[Q_contra, R_co]):
    """A stream to another node, and from it."""

    async def write(self, request: Q_contra) -> None:
        """Raises Unreachable, AerobeeError."""
        ...

    async def read(self) -> R_co | None:
        """None: it has ended. Raises Unreachable, AerobeeError."""
        ...

    def cancel(self) -> None: ...


class StreamingPeers(Peers, Protocol):
    """Other nodes, including calls with many answers or requests."""

    def open_stream(
        self,
        address: str,
        method: Method[Q, R],
        *,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> PeerStream[Q, R]: ...

    def open_server_stream(
        self,
        address: str,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> AnswerStream[R]: ...
