"""One contract, two engines: whatever serves, a client of gRPC sees the same."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from aerobee.rpc.core.status import RpcError
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.own_protocol import CODE_METADATA_KEY, say_error
from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.call_context import current_fields
from aerobee.runtime.errors import AerobeeError, InvalidArgument, TopicNotFound
from aerobee.v1 import common_pb2
from tests.rpc.asked_servicer import (
    ASKED_ID_MAX,
    MIB,
    SERVICE,
    Answer,
    Running,
    asking,
    serving,
)
from tests.support.waiting import until

EveryStyle = pytest.mark.parametrize("style", ["AtOnce", "Later", "Rest", "Task"])


@pytest.fixture(params=Engine)
def engine(request: pytest.FixtureRequest) -> Engine:
    which: Engine = request.param
    return which


@pytest.fixture
async def running(engine: Engine) -> AsyncIterator[Running]:
    async with serving(engine) as running:
        yield running


# ------------------------------------------------------------------------------------- shapes


@EveryStyle
async def test_one_request_has_one_answer(running: Running, style: str) -> None:
    stub = running.stub(style)
    assert (await stub(asking("x"))).record == b"x"
    assert len((await stub(asking(f"large:{4 * MIB}"))).record) == 4 * MIB
    assert (await stub(asking(""))).record == b""
    await until(lambda: running.observed.answers == [(style, "success")] * 3)


async def test_streams_of_answers_requests_and_both(running: Running) -> None:
    answers = [answer.record async for answer in running.stub("Count")(asking("500"))]
    assert answers == [b"%d" % number for number in range(500)]
    requests = [asking(str(number)) for number in range(100)]
    joined = await running.stub("Join")(iter(requests))
    assert joined.record == b",".join(b"%d" % number for number in range(100))
    for name in ("Converse", "Chat"):
        call = running.stub(name)()
        for number in range(100):
            await call.write(asking(str(number)))
            assert (await call.read()).record == b"%d" % number
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_servicer_asks_its_context_and_gives_it_trailers(running: Running) -> None:
    metadata = (("word", "x"), ("word-bin", b"\x01\xfe"))
    asks = running.stub("Asks")
    call = asks(asking(""), timeout=20, metadata=metadata)
    assert (await call).record == b"x \x01\xfe"
    trailers = {"asked": "once", "asked-bin": b"\x00\xff"}
    assert dict(await call.trailing_metadata()) == trailers
    status, error = await refused(asks(asking("status"), timeout=20, metadata=metadata))
    assert status is grpc.StatusCode.ALREADY_EXISTS
    assert dict(error.trailing_metadata() or ()) == trailers


async def test_a_method_that_a_servicer_lacks_or_nobody_knows_is_unimplemented(
    running: Running,
) -> None:
    for name in ("Missing", "Unheard"):
        status, _ = await refused(running.stub(name)(asking("")))
        assert status is grpc.StatusCode.UNIMPLEMENTED


# -------------------------------------------------------------------------------------- errors


async def refused(call: Any) -> tuple[grpc.StatusCode, grpc.aio.AioRpcError]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value


def code_in(error: grpc.aio.AioRpcError) -> object:
    return dict(error.trailing_metadata() or ()).get(CODE_METADATA_KEY)


@EveryStyle
async def test_an_error_has_status_words_and_code(running: Running, style: str) -> None:
    status, error = await refused(running.stub(style)(asking("typed")))
    assert status is grpc.StatusCode.NOT_FOUND
    assert error.details() == "no such topic: ärger"
    assert code_in(error) == str(common_pb2.TOPIC_NOT_FOUND)
    status, error = await refused(running.stub(style)(asking("status")))
    assert (status, error.details()) == (grpc.StatusCode.ALREADY_EXISTS, "there")
    assert dict(error.trailing_metadata() or ())["raw-bin"] == b"\x00\xff"
    told = [(style, "topic_not_found"), (style, "already_exists")]
    await until(lambda: running.observed.answers == told)


def told(error: AerobeeError, request: Any) -> list[Any]:
    """An error as an answer, with what was asked."""
    asked = "nothing" if request is None else request.offset_message_id
    return [Answer(record=f"{type(error).__name__} of {asked}: {error}".encode())]


def told_twice(error: AerobeeError, request: Any) -> list[Any]:
    return told(error, request) * 2


TOLD = {
    f"/{SERVICE}/{name}": told_twice if name == "Count" else told
    for name in ("AtOnce", "Later", "Rest", "Task", "Count", "Converse", "Chat")
}


@EveryStyle
async def test_a_protocol_may_say_errors_in_its_answers(engine: Engine, style: str) -> None:
    async with serving(engine, answer_errors=TOLD) as running:
        stub = running.stub(style)
        answer = await stub(asking("typed"))
        assert answer.record.decode() == "TopicNotFound of typed: no such topic: ärger"
        assert (await stub(asking("bug"))).record == (
            b"AerobeeError of bug: the server failed because of a bug of its own; see its log"
        )
        answer = await stub(asking("x" * (ASKED_ID_MAX + 1)))
        assert answer.record.startswith(b"InvalidArgument of nothing: GetMessageRequest.offset")
        assert running.observed.answers == [
            (style, "topic_not_found"),
            (style, "internal"),
            (style, "invalid_argument"),
        ]
        with pytest.raises(grpc.aio.AioRpcError) as status:
            await stub(asking("status"))
        assert status.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_stream_of_such_a_protocol_ends_well_after_the_answers_that_tell_the_error(
    engine: Engine,
) -> None:
    async with serving(engine, answer_errors=TOLD) as running:
        answers = [each.record async for each in running.stub("Count")(asking("1:typed"))]
        assert answers == [b"0", *[b"LimitReached of 1:typed: enough"] * 2]
        answers = [each.record async for each in running.stub("Count")(asking("x" * 101))]
        assert [answer[:26] for answer in answers] == [b"InvalidArgument of nothing"] * 2
        for name in ("Converse", "Chat"):
            requests = [asking("a"), asking("typed"), asking("never read")]
            answers = [each.record async for each in running.stub(name)(requests)]
            assert answers == [b"a", "TopicNotFound of nothing: no such topic: ärger".encode()]


@EveryStyle
async def test_a_bug_is_answered_without_its_words(
    running: Running, style: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, error = await refused(running.stub(style)(asking("bug")))
    assert status is grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")
    (line,) = [line for line in caplog.records if "because of a bug" in line.message]
    assert line.exc_info is not None
    await until(lambda: running.observed.answers == [(style, "internal")])


async def test_a_stream_ends_by_an_error_after_its_answers(running: Running) -> None:
    count = running.stub("Count")(asking("3:typed"))
    assert [(await count.read()).record for _ in range(3)] == [b"0", b"1", b"2"]
    status, error = await refused(count.read())
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert code_in(error) == str(common_pb2.LIMIT_REACHED)
    for name in ("Converse", "Chat"):
        call = running.stub(name)()
        await call.write(asking("fine"))
        assert (await call.read()).record == b"fine"
        await call.write(asking("typed"))
        status, told = await refused(call.read())
        assert status is grpc.StatusCode.NOT_FOUND
        assert code_in(told) == str(common_pb2.TOPIC_NOT_FOUND)


async def test_log_lines_of_a_handler_name_its_call(running: Running) -> None:
    metadata = (("aerobee-request-id", "order-7"),)
    for style in ("AtOnce", "Task"):
        await running.stub(style)(asking("x"), metadata=metadata)
        fields = running.servicer.fields.pop()
        assert (fields["call"], fields["request_id"]) == (style, "order-7")
        assert str(fields["peer"]).startswith("ipv4:127.0.0.1:")
    assert current_fields() == {}, "nothing is left behind"


# -------------------------------------------------------------------------------------- limits


async def test_a_request_beyond_its_limits_is_refused_before_the_servicer(
    running: Running,
) -> None:
    long = asking("x" * (ASKED_ID_MAX + 1))
    unary = [running.stub(name)(long) for name in ("AtOnce", "Later", "Rest", "Task")]
    count = running.stub("Count")(long)
    chats = [running.stub(name)(iter([long])) for name in ("Converse", "Chat")]
    for call in (*unary, *(call.read() for call in (count, *chats))):
        status, error = await refused(call)
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert "offset_message_id has a length of 101" in (error.details() or "")
        assert code_in(error) == str(common_pb2.INVALID_ARGUMENT)
    assert running.servicer.fields == []
    told = [(name, "invalid_argument") for name in ("AtOnce", "Later", "Rest", "Task")]
    await until(lambda: sorted(running.observed.answers) == sorted(told))


@EveryStyle
async def test_bytes_that_are_no_request_are_refused(running: Running, style: str) -> None:
    garbage = running.channel.unary_unary(f"/{SERVICE}/{style}")
    status, error = await refused(garbage(b"\xff" * 10))
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert code_in(error) == str(common_pb2.INVALID_ARGUMENT)


@EveryStyle
async def test_a_refused_request_is_freed_without_a_garbage_collection(style: str) -> None:
    """An error that is kept would keep the request, which may have megabytes."""
    async with serving(Engine.OWN) as running:
        garbage = running.channel.unary_unary(f"/{SERVICE}/{style}")
        gc.collect()
        before = errors_kept()
        gc.disable()
        try:
            await refused(garbage(b"\xff" * 10))
            for words in ("typed", "status", "x" * (ASKED_ID_MAX + 1)):
                await refused(running.stub(style)(asking(words)))
            await running.stub(style)(asking("fine"))
            await until(lambda: errors_kept() == before, "errors are freed", account=errors_kept)
        finally:
            gc.enable()


def errors_kept() -> list[object]:
    """Only of the kinds that this server raises: other tests of the process may have clusters that
    run on, and lose connections meanwhile."""
    kinds = (TopicNotFound, InvalidArgument, RpcError)
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


@EveryStyle
async def test_messages_have_a_largest_size_in_both_directions(
    running: Running, style: str
) -> None:
    raw = running.channel.unary_unary(f"/{SERVICE}/{style}")
    status, _ = await refused(raw(bytes(FRAME_BYTES_MAX + 1)))
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    largest = FRAME_BYTES_MAX - 100
    assert len(await raw(asking(f"large:{largest}").SerializeToString())) > largest
    status, _ = await refused(raw(asking(f"large:{FRAME_BYTES_MAX}").SerializeToString()))
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await running.stub(style)(asking("goes on"))).record == b"goes on"


async def test_connections_beyond_the_most_are_closed_and_others_come_when_some_go(
    engine: Engine,
) -> None:
    async with serving(engine, connections_max=2) as running:
        first, second, third = (running.connect() for _ in range(3))
        try:
            for channel in (first, second):
                assert (await running.stub("AtOnce", channel)(asking("x"))).record == b"x"
            status, _ = await refused(running.stub("AtOnce", third)(asking("x"), timeout=5))
            assert status is grpc.StatusCode.UNAVAILABLE
            await first.close()
            answer = await running.stub("AtOnce", third)(asking("y"), wait_for_ready=True)
            assert answer.record == b"y"
        finally:
            for channel in (first, second, third):
                await channel.close()


async def test_a_client_may_ask_whether_we_live_while_it_calls_nothing(running: Running) -> None:
    """As Aerobee's clients do every 10 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    ping = b"\0\0\x08\6\0\0\0\0\0" + b"12345678"
    writer.write(ping)
    received = b""
    async with asyncio.timeout(10):
        while b"\0\0\x08\6\1\0\0\0\0" + b"12345678" not in received:
            received += await reader.read(4_096)
    writer.close()
    await writer.wait_closed()


# ------------------------------------------------------------------- deadlines, cancellation


@pytest.mark.parametrize("name", ["Sleep", "SleepRest", "Never"])
async def test_a_call_ends_with_its_deadline(running: Running, name: str) -> None:
    status, _ = await refused(running.stub(name)(asking(""), timeout=0.2))
    assert status is grpc.StatusCode.DEADLINE_EXCEEDED
    if name != "Never":
        await until(lambda: running.servicer.events == ["sleeps", "woken"])
        await until(lambda: running.observed.answers == [(name, "cancelled")])


@pytest.mark.parametrize("name", ["Sleep", "SleepRest"])
async def test_a_cancelled_call_ends_its_handler(running: Running, name: str) -> None:
    events = running.servicer.events
    call = running.stub(name)(asking(""))
    await until(lambda: events == ["sleeps"])
    call.cancel()
    await until(lambda: events == ["sleeps", "woken"])
    stream = running.stub("Forever")(asking(""))
    assert len((await stream.read()).record) == 10_000
    stream.cancel()
    await until(lambda: events == ["sleeps", "woken", "ended"])


async def test_a_client_that_is_gone_ends_its_handlers_without_a_line(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    channel = running.connect()
    sleeps = running.stub("Sleep", channel)(asking(""))
    converse = running.stub("Converse", channel)()
    await converse.write(asking("x"))
    await converse.read()
    await until(lambda: "sleeps" in running.servicer.events)
    await channel.close()
    assert sleeps.done()
    await until(lambda: "woken" in running.servicer.events)
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


# ------------------------------------------------------------------------- starting, stopping


async def test_an_address_in_use_is_refused(running: Running, engine: Engine) -> None:
    second = RpcServer(say_error, [], engine=engine)
    with pytest.raises(InvalidArgument, match=f"cannot listen on {running.target}"):
        await second.start(running.target)
    await second.stop(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "[::]", "localhost"])
async def test_a_wildcard_listens_for_both_families(engine: Engine, host: str) -> None:
    server = RpcServer(say_error, [], engine=engine)
    port = await server.start(f"{host}:0")
    try:
        reached = ["127.0.0.1"]
        if socket.has_dualstack_ipv6() and host in ("0.0.0.0", "[::]"):
            reached.append("::1")
        for address in reached:
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
            await writer.wait_closed()
    finally:
        await server.stop(0)


async def test_a_stop_lets_running_calls_end_and_refuses_new_ones(engine: Engine) -> None:
    async with serving(engine) as running:
        call = running.stub("Briefly")(asking("x"))
        await until(lambda: running.servicer.events == ["begun"])
        stopping = asyncio.ensure_future(running.server.stop(10))
        assert (await call).record == b"x"
        await stopping
        status, _ = await refused(running.stub("AtOnce")(asking("x")))
        assert status is grpc.StatusCode.UNAVAILABLE


async def test_a_stop_ends_calls_that_outlast_its_grace(engine: Engine) -> None:
    async with serving(engine) as running:
        calls = [running.stub(name)(asking("")) for name in ("Sleep", "SleepRest", "Never")]
        stream = running.stub("Converse")()
        await stream.write(asking("x"))
        await stream.read()
        await until(lambda: sorted(running.servicer.events) == ["never", "sleeps", "sleeps"])
        async with asyncio.timeout(10):
            await running.server.stop(0.1)
        await until(lambda: running.servicer.events.count("woken") == 2)
        for call in (*calls, stream.read()):
            status, _ = await refused(call)
            assert status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


# ---------------------------------------------------------------------------- standard services


async def test_health_is_what_was_said_last(running: Running) -> None:
    stub = health_pb2_grpc.HealthStub(running.channel)
    answer = health_pb2.HealthCheckResponse
    for service in ("", SERVICE):
        asked = health_pb2.HealthCheckRequest(service=service)
        assert (await stub.Check(asked)).status == answer.SERVING
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watch.read()).status == answer.SERVING
    await running.server.set_serving(False)
    assert (await watch.read()).status == answer.NOT_SERVING
    assert (await stub.Check(health_pb2.HealthCheckRequest())).status == answer.NOT_SERVING
    await running.server.set_serving(True)
    assert (await watch.read()).status == answer.SERVING
    listed = await stub.List(health_pb2.HealthListRequest())
    assert {name: one.status for name, one in listed.statuses.items()} == {
        "": answer.SERVING,
        SERVICE: answer.SERVING,
    }
    status, _ = await refused(stub.Check(health_pb2.HealthCheckRequest(service="unknown")))
    assert status is grpc.StatusCode.NOT_FOUND
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="unknown"))
    assert (await unknown.read()).status == answer.SERVICE_UNKNOWN
    unknown.cancel()
    stopping = asyncio.ensure_future(running.server.stop(0.2))
    assert (await watch.read()).status == answer.NOT_SERVING
    await stopping


@pytest.mark.parametrize("version", ["v1alpha", "v1"])
async def test_reflection_tells_of_services_and_their_messages(
    running: Running, version: str
) -> None:
    """Both versions have the same messages, but for their names."""
    call = running.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )()

    async def ask(**question: Any) -> Any:
        await call.write(reflection_pb2.ServerReflectionRequest(**question))
        return await call.read()

    listed = (await ask(list_services="*")).list_services_response.service
    names = [service.name for service in listed]
    assert names == [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]
    for name in names:
        found = (await ask(file_containing_symbol=name)).file_descriptor_response
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(one)
            for one in found.file_descriptor_proto
        ]
        services = [f"{file.package}.{each.name}" for file in files for each in file.service]
        assert name in services
        have = {file.name for file in files}
        assert all(one in have for file in files for one in file.dependency), "imports come along"
    by_name = await ask(file_by_filename="aerobee/v1/common.proto")
    assert by_name.file_descriptor_response.file_descriptor_proto
    for unknown in (
        await ask(file_containing_symbol="no.such.Name"),
        await ask(all_extension_numbers_of_type="no.such.Name"),
        await ask(file_by_filename="no/such.proto"),
    ):
        assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert (await ask()).error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    numbers = await ask(all_extension_numbers_of_type="google.protobuf.MethodOptions")
    assert numbers.all_extension_numbers_response.base_type_name == "google.protobuf.MethodOptions"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
