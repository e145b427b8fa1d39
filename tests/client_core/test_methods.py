"""Every typed method says what the .proto files say."""

from __future__ import annotations

from aerobee.cluster_view import methods
from aerobee.v1 import audit_pb2, broker_pb2, nameserver_pb2

FILES = (audit_pb2.DESCRIPTOR, broker_pb2.DESCRIPTOR, nameserver_pb2.DESCRIPTOR)
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
                assert described.input_type is method.request.DESCRIPTOR
                assert described.output_type is method.answer.DESCRIPTOR
                break
        else:
            raise AssertionError(f"no service for {path}")


def test_no_method_that_clients_call_is_missing() -> None:
    described = {
        f"/{service.full_name}/{method.name}"
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }
    # Brokers register themselves, and masters say who is in sync with them.
    assert described - METHODS.keys() == {
        "/aerobee.v1.NameserverService/Register",
        "/aerobee.v1.NameserverService/AlterInSyncSet",
    }
