"""The TLS of one process: contexts made from files, which are watched.

Owns: the contexts. New connections use the current content of the files; open ones continue. Files
that cannot be used, for example while being replaced, are logged, and the previous content stays in
use.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aerobee.rpc.core.tls import FollowedTls, TlsFiles, client_context, server_context
from aerobee.rpc.server_engine import AcceptedTls
from aerobee.rpc.tls_config import (
    NodeTlsConfig,
    PlainText,
    TlsConfig,
    client_tls_config,
    files_of,
)
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import Gathered, gauge

if TYPE_CHECKING:
    from aerobee.rpc.outside_config import OutsideTlsConfig

CHECK_INTERVAL_S: Final = 5.0
"""How often files are checked."""

log = logging.getLogger(__name__)


class NodeTls:
    """Watches the files while its context is entered. Without a certificate everything in it is
    None."""

    def __init__(
        self,
        config: NodeTlsConfig,
        outside: OutsideTlsConfig | None = None,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        """Reads the files; those of `outside` take precedence.

        Raises:
            InvalidArgument: a file cannot be used; says which and why.
        """
        self._check_interval_s = check_interval_s
        self._following: asyncio.Task[None] | None = None
        self._certificates: list[_Certificate] = []
        self._watched: list[_WatchedFile] = []
        self._told: dict[str, datetime] = {}
        self.accepted: AcceptedTls | None = None
        """For gRPC ports."""
        self.outside: AcceptedTls | None = None
        """For the port of the outside listener."""
        self.http: FollowedTls | None = None
        """For HTTP/1.1 ports."""
        self.dialled: FollowedTls | None = None
        """For calls to other nodes."""
        if config.is_on:
            own = self._add(config.files(), "tls.")
            make = partial(server_context, client_auth=config.client_auth)
            self.accepted = self.outside = AcceptedTls(
                own.follow(make), accepts_plain_text=config.plain_text is not PlainText.REFUSED
            )
            self.http = own.follow(partial(make, protocols=("http/1.1",)))
            if config.plain_text is not PlainText.SPOKEN:
                self.dialled = own.follow(client_context)
        if outside is not None and outside.certificate:
            files = files_of(outside.certificate, outside.key, outside.ca)
            shown = self._add(files, "outside.tls.")
            make = partial(server_context, client_auth=outside.client_auth)
            self.outside = AcceptedTls(shown.follow(make), accepts_plain_text=False)
        for certificate in self._certificates:
            certificate.begin()
        for watched in self._watched:
            watched.refresh()

    def _add(self, files: TlsFiles, names: str) -> _Certificate:
        certificate = _Certificate(files, names)
        self._certificates.append(certificate)
        if files.authorities is not None:
            kind = f"{certificate.kind} authority".removeprefix("node ")
            self._watched.append(_WatchedFile(kind, files.authorities))
        return certificate

    def watch(self, kind: str, file: str) -> None:
        """Show the expiry of the certificates in another file, too, from now on; empty: none.
        Within the context."""
        if file:
            self._watched.append(_WatchedFile(kind, Path(file)))
            self._begin_following()

    def tell(self, kind: str, expires: datetime) -> None:
        """Show the expiry of a certificate that was seen elsewhere."""
        self._told[kind] = expires

    @property
    def expires(self) -> datetime | None:
        """The earliest expiry of a certificate in the files."""
        ends = [one.expires for one in self._certificates if one.expires is not None]
        return min(ends, default=None)

    async def __aenter__(self) -> Self:
        if self._certificates:
            self._begin_following()
        return self

    def _begin_following(self) -> None:
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(
                self._keep_following(), name="tls-files"
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following

    async def _keep_following(self) -> None:
        while True:
            await asyncio.to_thread(self.refresh)
            await asyncio.sleep(self._check_interval_s)

    def refresh(self) -> None:
        """Check the files now. Blocks."""
        for certificate in self._certificates:
            certificate.refresh()
        for watched in list(self._watched):
            watched.refresh()

    async def gather(self, cluster: str, node_type: str) -> Gathered:
        """The expiry of every certificate that this process uses, as a metric."""
        family = gauge(
            "aerobee_tls_certificate_expiry_timestamp_seconds",
            "When a certificate in use expires, in seconds since 1970.",
            "certificate",
        )
        files: list[_Certificate | _WatchedFile] = [*self._certificates, *self._watched]
        ends = [
            *((each.kind, each.expires) for each in files),
            *self._told.items(),
        ]
        for kind, expires in ends:
            family.add(None if expires is None else expires.timestamp(), kind)
        return Gathered({"cluster": cluster, "node_type": node_type}, [family])


class _WatchedFile:
    """A file of certificates that others use: only its expiry matters here."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self._path = path
        self._seen: tuple[int, int] | None = None
        self.expires: datetime | None = None
        """As last read: one that cannot be read now is being replaced."""

    def refresh(self) -> None:
        """Check the file now. Blocks."""
        with suppress(OSError, ValueError):
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_ino
            if seen != self._seen:
                self.expires = expiry(self._path)
                self._seen = seen


class _Certificate:
    """The files of one certificate, and the contexts made from them."""

    def __init__(self, files: TlsFiles, names: str) -> None:
        """`names` is a prefix for the name of a file in an error."""
        self._files = files
        self._names = names
        self.kind = "outside" if names.startswith("outside") else "node"
        self._followed: list[FollowedTls] = []
        self.expires: datetime | None = None

    def follow(self, make: Callable[[TlsFiles], ssl.SSLContext]) -> FollowedTls:
        """Raises InvalidArgument."""
        followed = followed_files(self._files, make, names=self._names)
        self._followed.append(followed)
        return followed

    def begin(self) -> None:
        """All contexts have been made: log the files."""
        self.expires = expiry(self._files.certificate)
        _log_files("TLS is on", self._files, self.expires)

    def refresh(self) -> None:
        """Check the files now. Blocks."""
        if refreshed(self._followed, self._files, self._names):
            with suppress(OSError, ValueError):
                self.expires = expiry(self._files.certificate)
            _log_files("TLS files were read again", self._files, self.expires)


class ClientTls:
    """A client's context. Reads the files.

    Raises InvalidArgument if a file cannot be used.
    """

    def __init__(self, config: TlsConfig, *, check_interval_s: float = CHECK_INTERVAL_S) -> None:
        self._files = config.files()
        self._check_interval_s = check_interval_s
        self.dialled = followed_files(self._files, client_context, names="TLS ")

    async def keep_following(self) -> None:
        """Check the files until cancelled."""
        while True:
            await asyncio.sleep(self._check_interval_s)
            await asyncio.to_thread(self.refresh)

    def refresh(self) -> None:
        """Check the files now. Blocks."""
        refreshed([self.dialled], self._files, "TLS ")


def client_tls(tls: bool | TlsConfig | None) -> ClientTls | None:
    """What a client's argument `tls` means; see `client_tls_config`. Blocks.

    Raises:
        InvalidArgument: a file or a variable cannot be used.
    """
    config = client_tls_config(tls)
    return None if config is None else ClientTls(config)


def dialled_tls(tls: bool | TlsConfig | None) -> FollowedTls | None:
    """The same for a single call, whose files are not watched. Blocks, and raises the same."""
    found = client_tls(tls)
    return None if found is None else found.dialled


def followed_files(
    files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext], *, names: str
) -> FollowedTls:
    """`names` is a prefix for the name of a file in an error. Blocks.

    Raises:
        InvalidArgument: a file cannot be used; says which and why.
    """
    try:
        return FollowedTls(files, make)
    except OSError as error:
        raise InvalidArgument(why_unusable(files, error, names)) from None


def refreshed(followed: list[FollowedTls], files: TlsFiles, names: str) -> bool:
    """Whether there was anything new; what cannot be used is logged. Blocks."""
    try:
        return True in [one.refresh() for one in followed]
    except OSError as error:
        log_event(
            log,
            "changed TLS files cannot be used; the old ones stay in use",
            level=logging.WARNING,
            reason=why_unusable(files, error, names),
        )
        return False


def why_unusable(files: TlsFiles, error: OSError, names: str) -> str:
    """One sentence that names the file, never its content."""
    named = (("certificate", files.certificate), ("key", files.key), ("ca", files.authorities))
    for name, path in named:
        if path is not None:
            try:
                path.read_bytes()
            except OSError as unreadable:
                return f"{names}{name}: cannot read {path}: {unreadable.strerror}"
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{names}key: {files.key} is not the key of {files.certificate}"
        for name, path in named:
            kind = "PRIVATE KEY" if name == "key" else "CERTIFICATE"
            if path is not None and f"{kind}-----".encode() not in path.read_bytes():
                return f"{names}{name}: {path} holds no {kind.lower()} in PEM form"
        if files.key is not None and _is_encrypted(files.key):
            return f"{names}key: {files.key} has a password; give a key without one"
    reason = getattr(error, "reason", None) or error.strerror or error
    paths = ", ".join(str(path) for _, path in named if path is not None)
    return f"the TLS files {paths} cannot be used: {reason}"


def _is_encrypted(path: Path) -> bool:
    return b"ENCRYPTED" in path.read_bytes()


def expiry(certificate: Path | None) -> datetime | None:
    """The earliest expiry of a certificate in the file. Blocks."""
    if certificate is None:
        return None
    from cryptography import x509

    found = x509.load_pem_x509_certificates(certificate.read_bytes())
    return min(one.not_valid_after_utc for one in found).astimezone(UTC)


def expiry_of(certificate: bytes) -> datetime:
    """Of a certificate as a peer shows it (DER). Raises ValueError."""
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc.astimezone(UTC)


def _log_files(event: str, files: TlsFiles, expires: datetime | None) -> None:
    log_event(
        log,
        event,
        certificate=files.certificate,
        ca=files.authorities or "",
        expires=expires.isoformat(timespec="seconds") if expires is not None else "",
    )
