"""Everything one node needs for access control."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from aerobee.access.book import AccessBook
from aerobee.access.callers import Callers, SignatureOf
from aerobee.access.config import AccessConfig
from aerobee.access.credentials import Anonymous, Credentials
from aerobee.access.guard import CallGuard
from aerobee.access.needs import STANDARD_NEEDS, NeedsTable
from aerobee.access.node_certificates import NodeCertificates
from aerobee.access.nodes import NodeName, NodeSigner, NodeVerifier
from aerobee.access.quotas import Quotas
from aerobee.access.recorder import Recorder
from aerobee.access.sealing import ClusterSecrets
from aerobee.runtime.clock import Clock
from aerobee.runtime.watched_file import WatchedFile


class NodeAccess:
    """Access control of a broker or a nameserver."""

    def __init__(
        self,
        config: AccessConfig,
        node: NodeName,
        *,
        clock: Clock,
        recorder: Recorder | None = None,
    ) -> None:
        """Raises InvalidArgument: the file with the cluster secret cannot be read."""
        self._config = config
        self.recorder = recorder or Recorder()
        path, file = config.cluster_secret_file, None
        if path:
            file = WatchedFile(path, ClusterSecrets.parse, clock.monotonic_s)
        self.book = AccessBook(file)
        self._cluster = node.cluster
        self.quotas = Quotas(self.book, clock.monotonic_s)
        self._verifier = NodeVerifier(node.cluster, lambda: self.book.secrets, clock.now_ms)
        self.credentials: Credentials = Anonymous()
        """For calls made by this node."""
        if file is not None:
            self.credentials = signer_of(file, node, clock.now_ms)

    def guard(
        self,
        table: NeedsTable,
        *,
        counts_connections: bool,
        signature_of: SignatureOf | None = None,
    ) -> CallGuard:
        """The guard of a server whose calls need what `table` says. `counts_connections` as for
        `CallGuard`, `signature_of` as for `Callers`."""
        certificates = NodeCertificates(self._cluster) if self._config.node_certificates else None
        return CallGuard(
            {**STANDARD_NEEDS, **table},
            Callers(
                self.book,
                self._verifier,
                certificates=certificates,
                signature_of=signature_of,
            ),
            self.recorder,
            is_checked=self._config.enabled,
            quotas=self.quotas,
            counts_connections=counts_connections,
        )


def signer_of(
    file: WatchedFile[ClusterSecrets], node: NodeName, now_ms: Callable[[], int]
) -> NodeSigner:
    """Signs with what the file contains when a call is made."""
    return NodeSigner(node, file.value, now_ms, secrets.randbits(64))
