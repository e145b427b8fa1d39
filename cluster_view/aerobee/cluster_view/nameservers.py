"""The access point: several nameservers, any one of which is enough.

A call goes to the one that last answered and moves on to the next if it fails. Reads are always
safe to repeat. A change that a failed nameserver may have carried out is repeated too, so its
answer can be TopicExists or TopicNotFound because of this very call.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.cluster_wait import ClusterWait
from aerobee.cluster_view.methods import Method
from aerobee.runtime import errors
from aerobee.runtime.addresses import is_dialled_address
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

ATTEMPT_TIMEOUT_MIN_MS = 500


def parse_addresses(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """host:port names from a list, or from text separated by comma or semicolon.

    Raises:
        InvalidArgument: none is given, or one is a URL or not host:port.

    >>> parse_addresses("10.0.0.1:8081;10.0.0.2:8081")
    ('10.0.0.1:8081', '10.0.0.2:8081')
    """
    given = addresses.replace(";", ",").split(",") if isinstance(addresses, str) else addresses
    parsed = tuple(dict.fromkeys(address.strip() for address in given if address.strip()))
    if not parsed:
        raise errors.InvalidArgument("no nameserver address is given: name at least one host:port")
    for address in parsed:
        if "/" in address:
            raise errors.InvalidArgument(
                f"nameserver address {address!r} is a URL or a path: write host:port and nothing "
                "else, for example 127.0.0.1:8081"
            )
        if not is_dialled_address(address):
            raise errors.InvalidArgument(
                f"nameserver address {address!r} is not host:port, for example 127.0.0.1:8081 or "
                "[::1]:8081"
            )
    return parsed


class Nameservers:
    """The nameservers of one client."""

    def __init__(
        self,
        channels: Channels,
        addresses: Sequence[str],
        *,
        clock: Clock,
        chance: random.Random,
        await_cluster_ms: int = 0,
    ) -> None:
        """`await_cluster_ms`: how long the first call retries while none can be reached."""
        self.addresses = tuple(addresses)
        self._channels = channels
        self._clock = clock
        # Clients with the same configuration start at different nameservers.
        self._turn = chance.randrange(len(self.addresses))
        # Until one has answered: a change that fails after that may have been carried out.
        self._await_cluster_ms = await_cluster_ms

    def address(self) -> str:
        """The one that is asked next."""
        return self.addresses[self._turn % len(self.addresses)]

    def pass_over(self, address: str) -> None:
        """`address` failed: others are asked first."""
        if self.address() == address:
            self._turn += 1

    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        timeout_ms: int = 3_000,
        attempt_max_ms: int | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> R:
        """Asks one after another until one answers; each gets its share of the time. `metadata` is
        added to the call.

        `attempt_max_ms`: for questions that a nameserver answers from memory. One that is silent
        for longer is passed over, and asked again over a new connection after all the others: its
        name may stand for several machines, one of which is dead.

        Raises:
            AerobeeError: the answer of a nameserver that could decide. Unreachable,
            RegistryUnavailable, DeadlineExceeded: none could; the error is that of the last.
        """
        wait = ClusterWait(self._await_cluster_ms / 1_000, self._clock.monotonic_s)
        while True:
            try:
                answer = await self._ask_each(method, request, timeout_ms, attempt_max_ms, metadata)
            except errors.Unreachable as error:
                if wait.is_over():
                    raise
                if wait.is_long():
                    log_event(
                        log,
                        "a call waits for the cluster",
                        level=logging.WARNING,
                        reason=error,
                        left_s=wait.left_s,
                    )
            except errors.AerobeeError:
                self._await_cluster_ms = 0
                raise
            else:
                self._await_cluster_ms = 0
                return answer
            await wait.pause()

    async def _ask_each(
        self,
        method: Method[Q, R],
        request: Q,
        timeout_ms: int,
        attempt_max_ms: int | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> R:
        """Raises as `call`."""
        end_s = self._clock.monotonic_s() + timeout_ms / 1_000
        attempts = len(self.addresses) * (1 if attempt_max_ms is None else 2)
        attempt_ms = max(ATTEMPT_TIMEOUT_MIN_MS, timeout_ms // attempts)
        if attempt_max_ms is not None:
            attempt_ms = min(attempt_ms, attempt_max_ms)
        failure: errors.AerobeeError | None = None
        for number in range(1, attempts + 1):
            remaining_ms = int((end_s - self._clock.monotonic_s()) * 1_000)
            if failure is not None and remaining_ms <= 0:
                break
            address = self.address()
            try:
                limit_ms = remaining_ms if number == attempts else min(attempt_ms, remaining_ms)
                return await self._channels.call(
                    address, method, request, timeout_ms=max(1, limit_ms), metadata=metadata
                )
            except (
                errors.Unreachable,
                errors.RegistryUnavailable,
                errors.DeadlineExceeded,
                errors.ShuttingDown,
            ) as error:
                failure = error
                self.pass_over(address)
                if isinstance(error, errors.DeadlineExceeded):
                    # Its host may be gone, and keepalive needs 15 s to notice. The next call to
                    # this nameserver, which may be the only one, must not wait on this connection.
                    self._channels.disconnect(address)
                elif number >= len(self.addresses):
                    break  # each has been asked
        assert failure is not None
        if isinstance(failure, errors.Unreachable):
            told = errors.Unreachable(f"no nameserver answers: {failure}; is one running there?")
            told.request_id = failure.request_id
            raise told from None
        raise failure
