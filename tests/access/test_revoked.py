"""What policies no longer allow ends at once, on every node, whatever stream it is."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.credentials import FILE_VARIABLE, Credentials, credentials_of_environment
from aerobee.rocketmq_api.times import duration
from aerobee.v1 import broker_pb2, broker_pb2_grpc, nameserver_pb2, nameserver_pb2_grpc
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from tests.support.local_up import Up, running

pytestmark = pytest.mark.slow

CLIENT = (("x-mq-client-id", "shop-1"), ("x-mq-language", "PYTHON"))
FAILS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
TOPIC, GROUP = v2.Resource(name="orders"), v2.Resource(name="readers")
IN_TIME_S = 1.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "orders")
        yield up


def allowed(up: Up, name: str, folder: Path) -> Credentials:
    file = folder / name
    up.run("user", "create", name, "--credentials-file", str(file))
    up.run("acl", "add", name, "Topic:orders", "Pub,Sub")
    up.run("acl", "add", name, "Group:readers*", "Sub")
    return credentials_of_environment({FILE_VARIABLE: str(file)})


class Streams:
    """One of each kind, as one user, each known to be served."""

    def __init__(self, up: Up, who: Credentials) -> None:
        document = up.document()
        self.broker = grpc.aio.insecure_channel(document["brokers"][0]["address"])
        self.nameserver = grpc.aio.insecure_channel(document["nameserver"])
        self._who = who

    def said(self, path: str) -> dict[str, Any]:
        return {"metadata": (*CLIENT, *self._who.metadata(path))}

    async def send(self) -> Any:
        call = broker_pb2_grpc.SendServiceStub(self.broker).SendStream(**self.said("SendStream"))
        frame = broker_pb2.SendFrame(batches=[broker_pb2.RecordBatch(topic="orders", sequence=1)])
        await call.write(frame)
        await call.read()  # that the batch is empty
        return call

    async def pull(self) -> Any:
        call = broker_pb2_grpc.PullServiceStub(self.broker).PullStream(**self.said("PullStream"))
        request = broker_pb2.PullRequest(topic="orders", group="readers-pull")
        subscribe = broker_pb2.SubscribeQueue(handle=1, request=request, credit_bytes=1 << 20)
        await call.write(broker_pb2.PullCommand(subscribe=subscribe))
        return call

    async def member(self) -> Any:
        call = broker_pb2_grpc.GroupServiceStub(self.broker).Membership(**self.said("Membership"))
        join = broker_pb2.Join(
            group="readers-own",
            client_id=f"shop-{uuid.uuid4()}",  # an id belongs to its user while its session lasts
            session_timeout_ms=30_000,
            subscriptions=[broker_pb2.Subscription(topic="orders")],
        )
        await call.write(broker_pb2.MemberEvent(join=join))
        assert (await call.read()).HasField("joined")
        return call

    async def routes(self) -> Any:
        stub = nameserver_pb2_grpc.NameserverServiceStub(self.nameserver)
        call = stub.WatchRoutes(
            nameserver_pb2.WatchRoutesRequest(topics=["orders"]), **self.said("WatchRoutes")
        )
        assert (await call.read()).routes
        return call

    async def telemetry(self) -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self.broker)
        call = stub.Telemetry(**self.said("Telemetry"))
        settings = v2.Settings(
            client_type=v2.SIMPLE_CONSUMER,
            subscription=v2.Subscription(
                group=GROUP, subscriptions=[v2.SubscriptionEntry(topic=TOPIC)]
            ),
        )
        await call.write(service_pb2.TelemetryCommand(settings=settings))
        assert (await call.read()).HasField("settings")
        return call

    async def poll(self) -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self.broker)
        request = service_pb2.ReceiveMessageRequest(
            group=GROUP,
            message_queue=v2.MessageQueue(topic=TOPIC, id=-1, broker=v2.Broker(name="broker-a")),
            filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
            batch_size=1,
            invisible_duration=duration(15_000),
            long_polling_timeout=duration(20_000),
        )
        return stub.ReceiveMessage(request, timeout=30, **self.said("ReceiveMessage"))


async def ended_s(call: Any) -> float:
    """How long until a stream says that its caller may not."""
    began, failure = time.monotonic(), None
    try:
        while (answer := await call.read()) is not grpc.aio.EOF:
            if isinstance(answer, broker_pb2.GroupEvent) and answer.HasField("failed"):
                break
            status = getattr(answer, "status", None)
            if status is not None and getattr(status, "code", 0) == v2.UNAUTHORIZED:
                break
        else:
            raise AssertionError("it ended without a word")
    except grpc.aio.AioRpcError as error:
        failure = error
    assert failure is None or failure.code() in FAILS, failure
    return time.monotonic() - began


KINDS = ("send", "pull", "member", "routes", "telemetry", "poll")
CHANGES: dict[str, Callable[[str], tuple[str, ...]]] = {
    "disabled": lambda name: ("user", "disable", name),
    "denied": lambda name: ("acl", "add", name, "Topic:orders", "All", "--deny"),
    "deleted": lambda name: ("user", "delete", name, "--yes"),
}


@pytest.fixture
async def streams(
    up: Up, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[str, Streams]]:
    name = f"shop-{request.node.callspec.params['change']}"
    streams = Streams(up, allowed(up, name, tmp_path))
    yield name, streams
    await streams.broker.close()
    await streams.nameserver.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_streams_end_when_a_user_may_no_more(
    up: Up, streams: tuple[str, Streams], change: str
) -> None:
    name, opened = streams
    calls = {kind: await getattr(opened, kind)() for kind in KINDS}
    waiting = {kind: asyncio.create_task(ended_s(call)) for kind, call in calls.items()}
    await asyncio.sleep(1.0)
    assert not [kind for kind, task in waiting.items() if task.done()], "they were served"
    changing = asyncio.create_task(asyncio.to_thread(up.run, *CHANGES[change](name)))
    async with asyncio.timeout(30):
        await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
        first_s = time.monotonic()
        for task in waiting.values():
            await task
        # From the first that heard of it; the command takes most of a second to start.
        assert time.monotonic() - first_s < IN_TIME_S
    await changing


@pytest.mark.thorough
async def test_a_pull_that_waits_gives_nothing_that_is_no_longer_allowed(
    up: Up, tmp_path: Path
) -> None:
    streams = Streams(up, allowed(up, "shop-pulling", tmp_path))
    request = broker_pb2.PullRequest(
        topic="orders", group="readers-pull", wait_ms=4_000, max_bytes=1 << 20
    )
    stub = broker_pb2_grpc.PullServiceStub(streams.broker)
    said = streams.said("/aerobee.v1.PullService/Pull")
    waiting = asyncio.ensure_future(stub.Pull(request, timeout=30, **said))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await asyncio.to_thread(up.run, "acl", "add", "shop-pulling", "Topic:orders", "All", "--deny")
    await asyncio.to_thread(up.run, "produce", "orders", given="secret\n" * 40)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await streams.broker.close()
    await streams.nameserver.close()
