"""The certificates that etcd's members show, as this nameserver sees them.

Nobody else watches them: etcd has no metric for them, and once one has expired, the next connection
to etcd fails, and with it every change of the cluster.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from aerobee.nameserver.config import EtcdConfig, EtcdTlsConfig
from aerobee.rpc.tls import expiry_of

INTERVAL_S: Final = 600.0
_TIMEOUT_S: Final = 5.0


class EtcdCertificates:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        config: EtcdConfig,
        tell: Callable[[str, datetime], None],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`tell` gets a name for each certificate, and when it expires."""
        self._config = config
        self._tell = tell
        self._interval_s = interval_s

    async def run(self) -> None:
        """Until cancelled; returns at once if etcd is contacted in plain text. A member that does
        not answer is looked at again later."""
        while self._config.tls.ca:
            for endpoint in self._config.endpoints:
                with suppress(OSError, ValueError):
                    expires = await asyncio.to_thread(shown_expiry, endpoint, self._config.tls)
                    self._tell(f"etcd {endpoint}", expires)
            await asyncio.sleep(self._interval_s)


def shown_expiry(endpoint: str, tls: EtcdTlsConfig) -> datetime:
    """When the certificate that a member shows expires. It is not checked, so that an expired one
    is seen, too, and nothing is sent. Blocks. Raises OSError, ValueError."""
    host, _, port = endpoint.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    address = host.strip("[]"), int(port)
    with (
        socket.create_connection(address, _TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as stream,
    ):
        shown = stream.getpeercert(binary_form=True)
    if shown is None:
        raise OSError(f"{endpoint} showed no certificate")
    return expiry_of(shown)
