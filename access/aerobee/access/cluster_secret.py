"""The file of the cluster secret, on a node or beside an operator's command."""

from __future__ import annotations

from aerobee.access.book import AccessBook
from aerobee.access.config import AccessConfig
from aerobee.access.sealing import ClusterSecrets
from aerobee.runtime.clock import Clock
from aerobee.runtime.watched_file import WatchedFile

SecretFile = WatchedFile[ClusterSecrets]


def secret_file(path: str, clock: Clock) -> SecretFile | None:
    """None if there is no path. Raises InvalidArgument: it cannot be read."""
    if not path:
        return None
    return WatchedFile(path, ClusterSecrets.parse, clock.monotonic_s)


def book_of(config: AccessConfig, clock: Clock) -> AccessBook:
    """Raises InvalidArgument: the file cannot be read."""
    file = secret_file(config.cluster_secret_file, clock)
    return AccessBook(file)
