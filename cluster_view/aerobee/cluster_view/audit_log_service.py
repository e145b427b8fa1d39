"""AuditLogService, which brokers and nameservers serve alike: the last lines of their audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aerobee.access.needs import NeedsTable, Resources, needing
from aerobee.access.recorder import Recorder
from aerobee.access.resources import Need
from aerobee.rpc.request_limits import Limit, RequestLimits
from aerobee.runtime.audit_log.reading import WantedLines, time_text
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import audit_log_pb2, audit_log_pb2_grpc

_SERVICE = audit_log_pb2.DESCRIPTOR.services_by_name["AuditLogService"]
SERVICE_NAME: Final[str] = _SERVICE.full_name
_TEXT = Limit(length=1_024)
_MOMENT_MAX_MS: Final = 253_402_300_799_999
"""The last one of the year 9999."""


class AuditLogService(audit_log_pb2_grpc.AuditLogServiceServicer):
    """Reads what `recorder` has written."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def ReadAuditLog(
        self, request: audit_log_pb2.ReadAuditLogRequest, context: Any
    ) -> audit_log_pb2.AuditLogPage:
        wanted = WantedLines(
            caller=request.caller,
            method=request.method,
            about=request.about,
            only_refusals=request.only_refusals,
            since=_moment(request.begin_ms),
            until=_moment(request.end_ms),
        )
        part = await self._recorder.read_back(request.before, wanted, request.lines_max)
        if part is None:
            return audit_log_pb2.AuditLogPage()
        return audit_log_pb2.AuditLogPage(
            node=part.node,
            is_kept=True,
            lines=(
                audit_log_pb2.AuditLogLine(json=line.data, place=line.place) for line in part.lines
            ),
            next=part.next,
            read_to=part.read_to,
            damaged=part.damaged,
        )


def add_to(server: Any, recorder: Recorder) -> None:
    """Makes a server of gRPC serve it."""
    add = audit_log_pb2_grpc.add_AuditLogServiceServicer_to_server
    add(AuditLogService(recorder), server)  # type: ignore[no-untyped-call]


def needs(cluster_name: str) -> NeedsTable:
    """A right of its own: lines show what every user does."""
    resources = Resources(cluster_name)

    def reads(request: Any, namespace: str) -> Iterable[Need]:
        return (resources.audit_log(),)

    return {f"/{SERVICE_NAME}/ReadAuditLog": needing(reads)}


def request_limits() -> RequestLimits:
    """Of every field."""
    return RequestLimits(
        [_SERVICE],
        {"ReadAuditLogRequest": 8 * 1_024},
        {
            "ReadAuditLogRequest.before": Limit(length=64),
            "ReadAuditLogRequest.caller": _TEXT,
            "ReadAuditLogRequest.method": _TEXT,
            "ReadAuditLogRequest.about": _TEXT,
        },
        package="aerobee.v1",
    )


def _moment(moment_ms: int) -> str:
    """Raises InvalidArgument."""
    if not 0 <= moment_ms <= _MOMENT_MAX_MS:
        raise InvalidArgument(f"{moment_ms} is no moment: give milliseconds since 1970")
    return time_text(moment_ms) if moment_ms else ""
