"""What requests to health and reflection may cost, on every server."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2

from aerobee.rpc.request_limits import Limit, RequestLimits

_NAME = Limit(length=1_024)


def health_limits() -> RequestLimits:
    return RequestLimits(
        health_pb2.DESCRIPTOR.services_by_name.values(),
        {"HealthCheckRequest": 4_096, "HealthListRequest": 1_024},
        {"HealthCheckRequest.service": _NAME},
        package="grpc.health.v1",
    )


def reflection_limits(files: Iterable[FileDescriptor]) -> list[RequestLimits]:
    """For each version of reflection."""
    return [
        RequestLimits(
            file.services_by_name.values(),
            {"ServerReflectionRequest": 8_192},
            {
                "ServerReflectionRequest.host": _NAME,
                "ServerReflectionRequest.file_by_filename": _NAME,
                "ServerReflectionRequest.file_containing_symbol": _NAME,
                "ServerReflectionRequest.all_extension_numbers_of_type": _NAME,
                "ServerReflectionRequest.list_services": _NAME,
                "ExtensionRequest.containing_type": _NAME,
            },
            package=file.package,
        )
        for file in files
    ]
