"""The audit log of a node, from start to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

from aerobee.access.config import AccessConfig
from aerobee.access.recorder import Recorder
from aerobee.access.sealing import ClusterSecrets
from aerobee.rpc.metrics_endpoint import MetricsEndpoint
from aerobee.runtime.audit_log.chain import Key
from aerobee.runtime.audit_log.config import AuditLogConfig
from aerobee.runtime.audit_log.writer import AuditLog
from aerobee.runtime.clock import Clock
from aerobee.runtime.watched_file import WatchedFile

_PURPOSE: Final = b"audit log"


class RecordingConfig(Protocol):
    """The settings that any kind of node has."""

    @property
    def cluster(self) -> str: ...
    @property
    def access(self) -> AccessConfig: ...
    @property
    def audit_log(self) -> AuditLogConfig: ...


def audit_log_keys(secrets: ClusterSecrets) -> list[Key]:
    """The keys used by nodes with these cluster secrets, the current one first."""
    return [Key(key) for key in secrets.keys(_PURPOSE)]


@asynccontextmanager
async def recording(
    config: RecordingConfig, node: str, node_type: str, clock: Clock, metrics: MetricsEndpoint
) -> AsyncIterator[Recorder]:
    """Within the block, calls can be recorded as the settings say. `node`: its name in the lines.

    Raises:
        InvalidArgument: a file cannot be used.
    """
    if not config.audit_log.file:
        recorder = Recorder()
        metrics.show("access", partial(recorder.gather, config.cluster, node_type))
        yield recorder
        return
    path = config.access.cluster_secret_file
    file = WatchedFile(path, ClusterSecrets.parse, clock.monotonic_s) if path else None

    def key() -> Key | None:
        return None if file is None else audit_log_keys(file.value())[0]

    async with AuditLog(config.audit_log, node, clock=clock, key=key) as lines:
        recorder = Recorder(lines)
        metrics.show("access", partial(recorder.gather, config.cluster, node_type))
        yield recorder
