"""Two authorities that live for one run of a local cluster, and what they sign: one for nodes and
clients, one for etcd.

Their own keys are never written: nobody can sign anything with them later.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.plan import HOST, EtcdTls, LocalTls
from aerobee.runtime.clock import Clock
from aerobee.runtime.private_files import make_private_folder

VALID: Final = timedelta(days=30)
_BEGUN_BEFORE: Final = timedelta(hours=1)
"""For clients whose clock is late."""


def make_certificates(
    tls: LocalTls,
    clock: Clock,
    *,
    nodes: Sequence[str] = (),
    operator: str = "",
    hosts: Sequence[str] = (),
) -> None:
    """Write them all anew. The certificate of the nodes names this machine, its loopback and
    `hosts`, and has the URIs `nodes`; the client's has the URI `operator`.

    Raises:
        EnvironmentFailure: the folder cannot be written.
    """
    authority = _Authority("Aerobee, one local cluster", clock)
    # Nodes call each other, so theirs is for both ends.
    both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    node, node_key = authority.issue("node", [*_hosts(hosts), *nodes], both)
    names = ["client", operator] if operator else ["client"]
    client, client_key = authority.issue("client", names, both[1:])
    written = {
        tls.ca: authority.certificate,
        tls.certificate: node,
        tls.key: node_key,
        tls.client_certificate: client,
        tls.client_key: client_key,
    }
    _write_all(tls.folder, written)


def make_etcd_certificates(tls: EtcdTls, clock: Clock) -> None:
    """Write them all anew. Raises EnvironmentFailure as `make_certificates`."""
    authority = _Authority("Aerobee, the etcd of one local cluster", clock)
    # etcd calls itself, to serve JSON.
    both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    etcd, etcd_key = authority.issue("etcd", _hosts(()), both)
    client, client_key = authority.issue("nameserver", ["nameserver"], both[1:])
    _write_all(
        tls.folder,
        {
            tls.ca: authority.certificate,
            tls.certificate: etcd,
            tls.key: etcd_key,
            tls.client_certificate: client,
            tls.client_key: client_key,
        },
    )


def _write_all(folder: Path, written: Mapping[Path, bytes]) -> None:
    try:
        make_private_folder(folder)
        for path, content in written.items():
            _write(path, content)
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot write certificates to {folder}: {error.strerror}; choose another --data"
        ) from error


class _Authority:
    """Signs what begins at one moment."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._begin = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC) - _BEGUN_BEFORE
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        built = self._builder(self._name, self._key)
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = self._signed(built, is_authority=True)
        """As PEM."""

    def issue(
        self, name: str, hosts: Sequence[str], usages: Sequence[x509.ObjectIdentifier]
    ) -> tuple[bytes, bytes]:
        """A certificate and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(host) for host in hosts])
        nobody = x509.BasicConstraints(ca=False, path_length=None)
        built = self._builder(_named(name), key).add_extension(nobody, critical=True)
        built = built.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        built = built.add_extension(names, critical=False)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return self._signed(built, is_authority=False), private

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        own, public = self._key.public_key(), key.public_key()
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(own)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._begin)
            .not_valid_after(self._begin + VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(by, critical=False)
        )

    def _signed(self, built: x509.CertificateBuilder, *, is_authority: bool) -> bytes:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=is_authority,
            crl_sign=is_authority,
            encipher_only=False,
            decipher_only=False,
        )
        signed = built.add_extension(usage, critical=True).sign(self._key, SHA256())
        return signed.public_bytes(Encoding.PEM)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    if "://" in host:
        return x509.UniformResourceIdentifier(host)
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(others: Sequence[str]) -> list[str]:
    own = socket.gethostname()
    # Others no certificate can say as the name of a host.
    names = [own] if own.isascii() and 0 < len(own) < 64 else []
    return list(dict.fromkeys(("localhost", HOST, "::1", *names, *others)))


def _write(path: Path, content: bytes) -> None:
    """At once as a whole, as clients may read; for the owner alone."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    new.replace(path)
