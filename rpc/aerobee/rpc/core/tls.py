"""TLS for both ends: the protocol h2, TLS 1.2 or newer, certificates that may be replaced.

New connections use the current content of the files; open ones keep what they began with, unless
the authority that vouched for the peer is removed from the file: then they must end.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from aerobee.rpc.core.trust import authorities_in, authority_of

DISTRUSTED: Final = "its certificate's authority is no longer trusted"


class ClientAuth(StrEnum):
    """Whether a server asks clients for a certificate."""

    NONE = "none"  # it does not
    OPTIONAL = "optional"  # a certificate is checked, and may be missing
    REQUIRED = "required"  # no connection without one


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files."""

    certificate: Path | None = None
    """This end's certificate and those that signed it. A server needs one."""
    key: Path | None = None
    authorities: Path | None = None
    """Authorities that may sign the peer's certificate. A client without this file trusts the
    system's authorities."""

    def stamp(self) -> tuple[object, ...]:
        """Changes when a file is replaced. Blocks.

        Raises:
            OSError: a file does not exist.
        """
        paths = (self.certificate, self.key, self.authorities)
        found = [path.stat() for path in paths if path is not None]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def server_context(
    files: TlsFiles,
    client_auth: ClientAuth = ClientAuth.REQUIRED,
    protocols: Sequence[str] = ("h2",),
) -> ssl.SSLContext:
    """The context of a server, which asks clients for certificates only if it has `authorities`.
    Blocks.

    Raises:
        OSError: a file cannot be read, or (ssl.SSLError) its content is invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.authorities is not None and client_auth is not ClientAuth.NONE:
        context.load_verify_locations(files.authorities)
        context.verify_mode = _VERIFY_MODES[client_auth]
    # A resumed session is not checked again, although its authority may be gone by now.
    context.options |= ssl.OP_NO_TICKET
    # One handshake per connection: renegotiation costs a client nothing, and the server a lot.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return _completed(context, files, protocols)


_VERIFY_MODES = {
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of a client that checks the server's name and certificate. Blocks.

    Raises:
        OSError: a file cannot be read, or (ssl.SSLError) its content is invalid.
    """
    authorities = str(files.authorities) if files.authorities is not None else None
    return _completed(ssl.create_default_context(cafile=authorities), files, ("h2",))


def _completed(
    context: ssl.SSLContext, files: TlsFiles, protocols: Sequence[str]
) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(list(protocols))
    if files.certificate is not None:
        # Without this, OpenSSL would ask on the terminal for the password of an encrypted key.
        context.load_cert_chain(files.certificate, files.key, password="")
    return context


class FollowedTls:
    """A context whose files may change, for a server's listener or for a channel."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        """`make`: `server_context` or `client_context`. Blocks, and raises what `make` raises."""
        self._files = files
        self._make = make
        self._stamp = files.stamp()
        self.newest = make(files)
        self._authorities = authorities_in(files.authorities)
        self._withdrawn: frozenset[bytes] = frozenset()
        """Authorities that have been removed from the file."""
        self._told: dict[object, Callable[[], object]] = {}

    def for_listener(self) -> ssl.SSLContext:
        """A context that passes each handshake to the newest one. Blocks."""
        context = self._make(self._files)

        def hand_over(tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            tls.context = self.newest

        context.sni_callback = hand_over
        return context

    def refresh(self) -> bool:
        """Read the files again if they have changed; returns whether they had. Blocks.

        Raises:
            OSError: they cannot be used; the previous content stays in use.
        """
        stamp = self._files.stamp()
        if stamp == self._stamp:
            return False
        self.newest = self._make(self._files)
        self._stamp = stamp
        authorities = authorities_in(self._files.authorities)
        withdrawn = (self._withdrawn | self._authorities) - authorities
        is_fewer = withdrawn > self._withdrawn
        self._authorities, self._withdrawn = authorities, withdrawn
        if is_fewer:
            for tell in list(self._told.values()):
                tell()
        return True

    def on_withdrawal(self, owner: object, listener: Callable[[], None]) -> None:
        """Call back on the running loop when an authority is removed from the file."""
        loop = asyncio.get_running_loop()
        self._told[owner] = partial(loop.call_soon_threadsafe, listener)

    def forget(self, owner: object) -> None:
        """Stop calling it."""
        self._told.pop(owner, None)

    def distrusts(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether the authority that vouched for its peer has been removed from the file."""
        if not self._withdrawn or transport is None:
            return False
        tls = transport.get_extra_info("ssl_object")
        return tls is not None and authority_of(tls) in self._withdrawn

    async def follow(self, every_s: float, on_failure: Callable[[OSError], None]) -> None:
        """Check for changes until cancelled. `on_failure` is called each time the files cannot be
        used, for example while they are being replaced."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await asyncio.to_thread(self.refresh)
            except OSError as error:
                on_failure(error)
