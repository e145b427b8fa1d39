"""From a host's name to a connection: tries every address, starting the next before the last has
failed.

Owns: one attempt, which ends with one connection or none. The name is resolved again each time,
because a process that comes back may have another address. Addresses are tried in the resolver's
order, alternating between the two families (RFC 8305): each gets a head start on the next, and the
first on which the peer speaks HTTP/2 wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest

from aerobee.rpc.core.client_connection import ClientConnection
from aerobee.rpc.core.tls import FollowedTls

Resolve = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]
"""From host and port to addresses, the best first. Raises OSError."""


class Unreachable(Exception):
    """No address gave a connection; the text says why for each."""


def system_resolver(loop: asyncio.AbstractEventLoop) -> Resolve:
    """Resolves names with the operating system, in one of the loop's threads."""

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return [(host, port)]
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(str(address[0]), int(address[1])) for *_, address in found]

    return resolve


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`.

    Raises:
        ValueError: it is neither.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is not an address; use host:port or [address]:port")
    return host, int(port)


def by_turns(addresses: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Each address once, alternating; the family of the first begins."""
    unique = list(dict.fromkeys(addresses))
    if not unique:
        return []
    first_is_v6 = ":" in unique[0][0]
    same = [one for one in unique if (":" in one[0]) == first_is_v6]
    other = [one for one in unique if (":" in one[0]) != first_is_v6]
    pairs = chain.from_iterable(zip_longest(same, other))
    return [one for one in pairs if one is not None]


class Dialer:
    """Connects to one host and port."""

    def __init__(
        self,
        host: str,
        port: int,
        make: Callable[[], ClientConnection],
        *,
        resolve: Resolve,
        tls: ssl.SSLContext | FollowedTls | None,
        server_name: str | None,
        attempt_s: float,
        stagger_s: float,
    ) -> None:
        """`server_name`: the name the peer's certificate must contain; by default the host.
        `attempt_s`: for the name and then for each address, until HTTP/2 is spoken. `stagger_s`:
        the head start of an address over the next one."""
        self._host = host
        self._port = port
        self._make = make
        self._resolve = resolve
        self._tls = tls
        self._server_name = server_name or host
        self._attempt_s = attempt_s
        self._stagger_s = stagger_s

    async def dial(self) -> ClientConnection:
        """One attempt.

        Raises:
            Unreachable: the name has no address, or none of them answers.
        """
        try:
            async with asyncio.timeout(self._attempt_s):
                addresses = by_turns(await self._resolve(self._host, self._port))
        except TimeoutError:
            raise Unreachable(f"the host name {self._host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else ""
            raise Unreachable(self._unresolved(reason or str(error))) from None
        return await self._race(addresses)

    def _unresolved(self, reason: str) -> str:
        return f"the host name {self._host} cannot be resolved: {reason}"

    async def _race(self, addresses: Sequence[tuple[str, int]]) -> ClientConnection:
        loop = asyncio.get_running_loop()
        failures: list[str] = []
        running: dict[asyncio.Task[ClientConnection], str] = {}
        winner: ClientConnection | None = None
        try:
            for number, address in enumerate(addresses, 1):
                task = loop.create_task(self._connect(address), name=f"dial:{address[0]}")
                running[task] = address[0]
                winner = await self._first(running, failures, is_last=number == len(addresses))
                if winner is not None:
                    return winner
            raise Unreachable("; ".join(failures) or self._unresolved("it has no address"))
        finally:
            await _give_up(running, winner)

    async def _first(
        self,
        running: dict[asyncio.Task[ClientConnection], str],
        failures: list[str],
        *,
        is_last: bool,
    ) -> ClientConnection | None:
        """The first connection; None when it is time to try the next address."""
        while running:
            done, _ = await asyncio.wait(
                running,
                timeout=None if is_last else self._stagger_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                return None
            for task in done:
                error = task.exception()
                if error is None:
                    return task.result()
                address = running.pop(task)
                # A caller that dials an address, not a name, knows which one failed.
                place = "" if address == self._host else f"{address}: "
                failures.append(f"{place}{_words(error)}")
            if not is_last:
                return None
        return None

    async def _connect(self, address: tuple[str, int]) -> ClientConnection:
        """Try one address, until its peer has sent its SETTINGS."""
        connection = self._make()
        try:
            async with asyncio.timeout(self._attempt_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    *address,
                    ssl=self._tls.newest if isinstance(self._tls, FollowedTls) else self._tls,
                    server_hostname=self._server_name if self._tls is not None else None,
                )
                await connection.settled
        except BaseException:
            connection.discard()
            raise
        return connection


async def _give_up(
    running: dict[asyncio.Task[ClientConnection], str], winner: ClientConnection | None
) -> None:
    """Give up all other attempts, and close what they have opened."""
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in running:
        if not task.cancelled() and task.exception() is None and task.result() is not winner:
            task.result().discard()


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
