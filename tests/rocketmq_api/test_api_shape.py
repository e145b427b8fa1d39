"""The stubs are the API that official clients were built from: every name, number and kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
)

from apache.rocketmq.v2 import admin_pb2, definition_pb2, service_pb2

TABLE = Path(__file__).parent / "api_v2.txt"
FILES = {
    "definition": definition_pb2.DESCRIPTOR,
    "service": service_pb2.DESCRIPTOR,
    "admin": admin_pb2.DESCRIPTOR,
}
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def expected_lines() -> list[str]:
    lines = TABLE.read_text().splitlines()
    return sorted(line for line in lines if line and not line.startswith("#"))


def short(full_name: str) -> str:
    return full_name.removeprefix("apache.rocketmq.v2.").removeprefix("google.protobuf.")


def kind_of(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            return f"map<{kind_of(key)},{kind_of(value)}>"
        return short(field.message_type.full_name)
    if field.enum_type is not None:
        return short(field.enum_type.full_name)
    return SCALARS[field.type]


def described_field(field: FieldDescriptor) -> str:
    text = f"{field.number} {field.name} {kind_of(field)}"
    oneof = field.containing_oneof
    if field.is_repeated:
        return text if text.split()[2].startswith("map<") else f"{text}[]"
    if oneof is not None and oneof.name == f"_{field.name}":
        return f"{text}?"
    return text if oneof is None else f"{text} {{{oneof.name}}}"


def described_enum(file: str, enum: EnumDescriptor) -> str:
    values = ", ".join(f"{value.name}={value.number}" for value in enum.values)
    return f"{file} enum {short(enum.full_name)}: {values}"


def described_message(file: str, message: Descriptor) -> Iterator[str]:
    if message.GetOptions().map_entry:
        return
    fields = "; ".join(described_field(field) for field in message.fields)
    yield f"{file} message {short(message.full_name)}: {fields or 'no fields'}"
    for enum in message.enum_types:
        yield described_enum(file, enum)
    for inner in message.nested_types:
        yield from described_message(file, inner)


def described_file(name: str, file: FileDescriptor) -> Iterator[str]:
    for service in file.services_by_name.values():
        for method in service.methods:
            request, response = (
                short(method.input_type.full_name),
                short(method.output_type.full_name),
            )
            request = f"stream {request}" if method.client_streaming else request
            response = f"stream {response}" if method.server_streaming else response
            yield f"rpc {service.name}.{method.name}: {request} -> {response}"
    for enum in file.enum_types_by_name.values():
        yield described_enum(name, enum)
    for message in file.message_types_by_name.values():
        yield from described_message(name, message)


def by_number(line: str) -> str:
    """Fields in the order of their numbers: where a file writes them means nothing."""
    head, _, fields = line.partition(": ")
    if " message " not in head or fields == "no fields":
        return line
    return f"{head}: " + "; ".join(
        sorted(fields.split("; "), key=lambda text: int(text.split()[0]))
    )


def test_every_message_enum_and_call_is_as_the_interface_says() -> None:
    found = [line for name, file in FILES.items() for line in described_file(name, file)]
    assert sorted(map(by_number, found)) == sorted(map(by_number, expected_lines()))


def test_methods_have_the_paths_that_clients_call() -> None:
    assert [
        service.full_name for file in FILES.values() for service in file.services_by_name.values()
    ] == ["apache.rocketmq.v2.MessagingService", "apache.rocketmq.v2.Admin"]


def test_files_have_the_options_by_which_other_languages_name_their_classes() -> None:
    outer = {"definition": "MQDomain", "service": "MQService", "admin": "MQAdmin"}
    for name, file in FILES.items():
        options = file.GetOptions()
        assert file.name == f"apache/rocketmq/v2/{name}.proto"
        assert options.java_outer_classname == outer[name]
        assert options.java_package == "apache.rocketmq.v2"
        assert options.csharp_namespace == "Apache.Rocketmq.V2"
        assert options.java_multiple_files
        assert options.java_generate_equals_and_hash
        assert options.java_string_check_utf8
    assert admin_pb2.DESCRIPTOR.GetOptions().cc_enable_arenas
