"""Certificates of an authority that exists for one test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files: the issuer, the certificate, its private key; named as in a TLS Secret."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"


def issue(
    authority: trustme.CA,
    folder: Path,
    *names: str,
    begin: datetime | None = None,
    end: datetime | None = None,
) -> Certificate:
    """A certificate for a server or client with these host names or addresses, valid now unless
    specified otherwise. Replaces existing files."""
    folder.mkdir(parents=True, exist_ok=True)
    issued = authority.issue_cert(*names, not_before=begin, not_after=end)
    made = Certificate(folder)
    made.ca.write_bytes(authority.cert_pem.bytes())
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    # PKCS 8, the only form that Java reads.
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made


def out_of_time() -> dict[str, tuple[datetime, datetime]]:
    """Descriptions of certificates that are not valid now, and their validity periods."""
    now, hour = datetime.now(UTC), timedelta(hours=1)
    return {
        "certificate has expired": (now - 9 * hour, now - hour),
        "certificate is not yet valid": (now + hour, now + 9 * hour),
    }
