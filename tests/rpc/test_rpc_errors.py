"""What a failed call becomes: a sentence that says who did not answer."""

from __future__ import annotations

import grpc
import pytest

from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.runtime.errors import AerobeeError, NotMaster, Unreachable
from aerobee.v1 import common_pb2
from tests.support.grpcio_client import error_from_rpc


def failed(status: grpc.StatusCode, details: str, *, code: int | None = None) -> AerobeeError:
    trailing = grpc.aio.Metadata()
    if code is not None:
        trailing.add(CODE_METADATA_KEY, str(code))
    error = grpc.aio.AioRpcError(status, grpc.aio.Metadata(), trailing, details=details)
    return error_from_rpc(error, "host:1")


@pytest.mark.parametrize(
    ("status", "details", "told"),
    [
        ("UNAVAILABLE", "connection refused", "cannot reach host:1: connection refused"),
        ("UNAVAILABLE", "", "cannot reach host:1: the connection broke"),
        ("INTERNAL", "Internal error from Core", "cannot reach host:1: the connection broke"),
        (
            "INTERNAL",
            "Received RST_STREAM with error code 2",
            "cannot reach host:1: the connection broke",
        ),
    ],
)
def test_a_connection_that_breaks_in_a_call_is_no_failure_of_the_server(
    status: str, details: str, told: str
) -> None:
    error = failed(grpc.StatusCode[status], details)
    assert isinstance(error, Unreachable)
    assert str(error) == told


def test_what_a_server_says_itself_stays_what_it_said() -> None:
    error = failed(grpc.StatusCode.INTERNAL, "Internal error from Core", code=common_pb2.NOT_MASTER)
    assert isinstance(error, NotMaster)
    error = failed(grpc.StatusCode.INTERNAL, "a bug")
    assert str(error) == "host:1 failed with INTERNAL: a bug"
