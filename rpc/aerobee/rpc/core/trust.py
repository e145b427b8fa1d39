"""Which authorities a file names, and which of them vouched for a peer.

A connection lasts as long as its peer wants. When an authority is removed from the file, exactly
the connections of the peers it vouched for end.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DER: Final = 2
"""The value of `_ssl.ENCODING_DER`."""


def authorities_in(path: Path | None) -> frozenset[bytes]:
    """The certificates of a PEM file as DER; none without a file. Blocks.

    Raises:
        OSError: it cannot be read.
    """
    if path is None:
        return frozenset()
    text = path.read_text("ascii", "replace")
    return frozenset(ssl.PEM_cert_to_DER_cert(block) for block in _BLOCK.findall(text))


def authority_of(tls: ssl.SSLObject) -> bytes | None:
    """The certificate, as DER, at the end of the chain that the handshake verified; None: the peer
    was not asked for a certificate, or had none."""
    if tls.getpeercert(True) is None:
        return None
    told: Any = getattr(tls, "get_verified_chain", None)
    if told is not None:
        return bytes(told()[-1])
    # Before Python 3.13 it exists, but is not public.
    inner: Any = tls._sslobj  # type: ignore[attr-defined]
    return bytes(inner.get_verified_chain()[-1].public_bytes(_DER))
