"""Every typed method says what the .proto files say."""

from __future__ import annotations

from aerobee.cluster_view import methods
from aerobee.v1 import (
    access_pb2,
    audit_log_pb2,
    audit_pb2,
    broker_pb2,
    nameserver_pb2,
    replication_pb2,
)

FILES = tuple(
    file.DESCRIPTOR
    for file in (access_pb2, audit_log_pb2, audit_pb2, broker_pb2, nameserver_pb2, replication_pb2)
)
METHODS = {
    value.path: value for value in vars(methods).values() if isinstance(value, methods.Method)
}


def test_paths_requests_and_answers_are_those_of_the_services() -> None:
    for path, method in METHODS.items():
        _, service_name, method_name = path.split("/")
        for file in FILES:
            service = file.services_by_name.get(service_name.removeprefix("aerobee.v1."))
            if service is not None:
                described = service.methods_by_name[method_name]
                # A method of bytes leaves both messages to who calls it.
                assert method.request is bytes or (
                    described.input_type is method.request.DESCRIPTOR
                )
                assert method.answer is bytes or described.output_type is method.answer.DESCRIPTOR
                break
        else:
            raise AssertionError(f"no service for {path}")


def test_no_method_is_missing() -> None:
    described = {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert described == METHODS.keys()
