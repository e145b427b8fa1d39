"""gRPC server reflection: what is served, and its descriptors, for tools such as grpcurl.

Served as v1alpha, whose messages are in the package grpcio-reflection, and as v1, whose messages
differ only in their package: they are derived from the others here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2

from aerobee.rpc.core.status import Status

_V1ALPHA: Final = "grpc.reflection.v1alpha"
_V1: Final = "grpc.reflection.v1"


def reflection_files() -> tuple[FileDescriptor, FileDescriptor]:
    """For v1alpha and for v1, each with its service ServerReflection."""
    alpha: FileDescriptor = reflection_pb2.DESCRIPTOR
    return alpha, _renamed(alpha)


def _renamed(alpha: FileDescriptor) -> FileDescriptor:
    """In a separate pool: the default one may already have v1 from another package."""
    file = descriptor_pb2.FileDescriptorProto()
    alpha.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", _V1
    for message in file.message_type:
        for field in filter(lambda field: field.HasField("type_name"), message.field):
            field.type_name = field.type_name.replace(f".{_V1ALPHA}.", f".{_V1}.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
            method.output_type = method.output_type.replace(f".{_V1ALPHA}.", f".{_V1}.")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindFileByName(file.name)


def service_of(file: FileDescriptor) -> Any:
    """The descriptor of its service."""
    return file.services_by_name["ServerReflection"]


class Reflection:
    """The servicer of one version of grpc.reflection.*.ServerReflection."""

    def __init__(
        self, file: FileDescriptor, files: Iterable[FileDescriptor], service_names: Iterable[str]
    ) -> None:
        """`file` is the one in `files` for this version; `service_names` are all that are
        served."""
        self.service_name: str = service_of(file).full_name
        self._names = sorted(service_names)
        self._pools = list(dict.fromkeys((descriptor_pool.Default(), *(f.pool for f in files))))
        self.request = GetMessageClass(file.message_types_by_name["ServerReflectionRequest"])
        self.response = GetMessageClass(file.message_types_by_name["ServerReflectionResponse"])

    async def ServerReflectionInfo(
        self, requests: AsyncIterator[Any], context: object
    ) -> AsyncIterator[Any]:
        async for request in requests:
            yield self._answer(request)

    def _answer(self, request: Any) -> Any:
        answer: Any = self.response(valid_host=request.host, original_request=request)
        try:
            match request.WhichOneof("message_request"):
                case "list_services":
                    for name in self._names:
                        answer.list_services_response.service.add(name=name)
                case "file_by_filename":
                    name = request.file_by_filename
                    self._add_files(answer, self._found(lambda pool: pool.FindFileByName(name)))
                case "file_containing_symbol":
                    name = request.file_containing_symbol
                    self._add_files(
                        answer, self._found(lambda pool: pool.FindFileContainingSymbol(name))
                    )
                case "file_containing_extension":
                    wanted = request.file_containing_extension
                    self._add_files(answer, self._found(_file_of_extension(wanted)))
                case "all_extension_numbers_of_type":
                    self._add_numbers(answer, request.all_extension_numbers_of_type)
                case _:
                    _refuse(answer, Status.INVALID_ARGUMENT, "the request asks for nothing")
        except KeyError:
            _refuse(answer, Status.NOT_FOUND, "not found")
        return answer

    def _found(self, find: Callable[[Any], FileDescriptor]) -> FileDescriptor:
        """Raises KeyError."""
        *some, last = self._pools
        for pool in some:
            with suppress(KeyError):
                return find(pool)
        return find(last)

    def _add_files(self, answer: Any, file: FileDescriptor) -> None:
        """Adds the file and everything it imports."""
        files: dict[str, FileDescriptor] = {}
        waiting = [file]
        while waiting:
            each = waiting.pop()
            if each.name not in files:
                files[each.name] = each
                waiting += each.dependencies
        answer.file_descriptor_response.file_descriptor_proto.extend(
            each.serialized_pb for each in files.values()
        )

    def _add_numbers(self, answer: Any, name: str) -> None:
        pool = self._pools[0]
        message = pool.FindMessageTypeByName(name)
        numbers = answer.all_extension_numbers_response
        numbers.base_type_name = message.full_name
        numbers.extension_number.extend(
            sorted(extension.number for extension in pool.FindAllExtensions(message))
        )


def _file_of_extension(wanted: Any) -> Callable[[Any], FileDescriptor]:
    def find(pool: Any) -> FileDescriptor:
        message = pool.FindMessageTypeByName(wanted.containing_type)
        file: FileDescriptor = pool.FindExtensionByNumber(message, wanted.extension_number).file
        return file

    return find


def _refuse(answer: Any, status: Status, message: str) -> None:
    answer.error_response.error_code = int(status)
    answer.error_response.error_message = message
