"""The broker's side of registration, against scripted nameservers over real gRPC."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from aerobee.broker.cluster.registration import (
    LEASES_OF_OTHERS,
    Registration,
    RegistrationConfig,
)
from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.retry import Backoff
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.support.waiting import until

LEASE_MS = 1_000


class ScriptedNameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Answers heartbeats as the test says, and remembers them."""

    def __init__(self) -> None:
        self.heartbeats: list[nameserver_pb2.BrokerHeartbeat] = []
        self.streams = 0
        self.silent = False
        self.failure: errors.AerobeeError | None = None
        self.directive = nameserver_pb2.BrokerDirective(
            role=common_pb2.MASTER, epoch=1, lease_duration_ms=LEASE_MS
        )
        self.server: rpc.RpcServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.NameserverService"])
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(self, self.server.server)
        self.port = await self.server.start(f"127.0.0.1:{self.port}")

    async def stop(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.stop(0)

    async def Register(
        self, requests: AsyncIterator[nameserver_pb2.BrokerHeartbeat], context: object
    ) -> AsyncIterator[nameserver_pb2.BrokerDirective]:
        self.streams += 1
        async for heartbeat in requests:
            self.heartbeats.append(heartbeat)
            if heartbeat.leaving:
                return
            if self.failure is not None:
                raise self.failure
            if not self.silent:
                yield self.directive


@dataclass
class Broker:
    """What a Registration asks and tells."""

    metadata_revision: int = 0
    due: asyncio.Event = field(default_factory=asyncio.Event)
    directives: list[nameserver_pb2.BrokerDirective] = field(default_factory=list)
    incomplete: list[errors.ReplicaIncomplete] = field(default_factory=list)

    def heartbeat(self) -> nameserver_pb2.BrokerHeartbeat:
        return nameserver_pb2.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(broker_name="broker-a", instance="i1"),
            address="127.0.0.1:10911",
            metadata_revision=self.metadata_revision,
        )

    async def on_directive(self, directive: nameserver_pb2.BrokerDirective) -> None:
        self.directives.append(directive)
        self.metadata_revision = max(self.metadata_revision, directive.metadata_revision)


@pytest.fixture
async def servers() -> AsyncIterator[list[ScriptedNameserver]]:
    """Two nameservers that run."""
    started = [ScriptedNameserver(), ScriptedNameserver()]
    for server in started:
        await server.start()
    yield started
    for server in started:
        await server.stop()


@pytest.fixture
def broker() -> Broker:
    return Broker()


Run = Callable[..., Awaitable[tuple[Registration, "asyncio.Task[None]"]]]


@pytest.fixture
async def run(broker: Broker) -> AsyncIterator[Run]:
    """Runs a Registration at the given nameservers until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    async def start(
        *servers: ScriptedNameserver, **settings: int
    ) -> tuple[Registration, asyncio.Task[None]]:
        registration = Registration(
            RegistrationConfig(
                nameservers=tuple(server.address for server in servers),
                lease_duration_ms=LEASE_MS,
                backoff=Backoff(base_ms=10, max_ms=50),
                **settings,
            ),
            clock=SystemClock(),
            chance=random.Random(3),
            heartbeat=broker.heartbeat,
            on_directive=broker.on_directive,
            due=broker.due,
            on_incomplete=broker.incomplete.append,
        )
        tasks.append(asyncio.create_task(registration.run()))
        return registration, tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_heartbeat_goes_out_at_once_and_then_every_third_of_the_lease(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    server = servers[0]
    registration, _ = await run(server)
    await until(lambda: len(broker.directives) == 1, timeout_s=2)
    assert server.heartbeats[0].lease_duration_ms == LEASE_MS
    assert registration.statistics().registered
    begun = asyncio.get_running_loop().time()
    await until(lambda: len(server.heartbeats) == 4)
    assert 0.9 <= asyncio.get_running_loop().time() - begun < 2.5
    assert server.streams == 1
    assert 0 <= registration.statistics().last_renewed_age_ms < 1_000


async def test_the_lease_that_the_nameserver_granted_sets_the_pace(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    server = servers[0]
    server.directive.lease_duration_ms = 90
    await run(server)
    await until(lambda: len(server.heartbeats) > 5, timeout_s=2)


async def test_topics_are_acknowledged_at_once_and_only_once(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    server = servers[0]
    server.directive.topics.add(name="orders", revision=7)
    server.directive.topics_complete = True
    server.directive.metadata_revision = 7
    await run(server)
    await until(lambda: len(server.heartbeats) == 2, timeout_s=0.3)
    assert server.heartbeats[1].metadata_revision == 7
    await asyncio.sleep(0.1)
    assert len(server.heartbeats) == 2, "a nameserver that repeats itself causes no storm"


async def test_a_change_that_cannot_wait_is_sent_soon(
    servers: list[ScriptedNameserver], run: Run, broker: Broker
) -> None:
    server = servers[0]
    await run(server)
    await until(lambda: len(server.heartbeats) == 1)
    broker.due.set()
    await until(lambda: len(server.heartbeats) == 2, timeout_s=0.3)


async def test_another_nameserver_is_used_when_one_ends(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    registration, _ = await run(*servers)
    await until(lambda: registration.statistics().registered)
    used = next(server for server in servers if server.heartbeats)
    other = next(server for server in servers if not server.heartbeats)
    await used.stop()
    await until(lambda: len(other.heartbeats) > 0, timeout_s=2)
    await until(lambda: registration.statistics().registered)
    assert registration.statistics().nameserver == other.address


async def test_the_broker_goes_on_while_all_nameservers_are_away(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    registration, task = await run(*servers)
    await until(lambda: registration.statistics().registered)
    for server in servers:
        await server.stop()
    await until(lambda: registration.statistics().failures >= 4)
    assert not registration.statistics().registered
    assert not task.done()
    told = len(broker.directives)
    await servers[1].start()
    await until(lambda: len(broker.directives) > told)
    assert registration.statistics().failures == 0


async def test_a_nameserver_that_does_not_answer_is_given_up(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    for server in servers:
        server.silent = True
    await run(*servers, answer_timeout_ms=100)
    await until(lambda: all(server.streams > 0 for server in servers), timeout_s=3)


async def test_a_stale_answer_is_passed_on_but_does_not_count_as_renewal(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    servers[0].directive.stale = True
    registration, _ = await run(servers[0])
    await until(lambda: len(broker.directives) > 0)
    statistics = registration.statistics()
    assert (statistics.registered, statistics.stale) == (True, True)
    assert statistics.last_renewed_age_ms == -1


async def test_a_first_registration_waits_for_an_earlier_owner_to_go(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    server = servers[0]
    server.failure = errors.DuplicateBroker("another one is alive")
    _, task = await run(server)
    await until(lambda: server.streams >= 3)
    assert not task.done()
    server.failure = None
    await until(lambda: len(broker.directives) > 0)


async def test_an_owner_that_does_not_go_ends_the_wait_with_an_error(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    servers[0].failure = errors.DuplicateBroker("another one is alive")
    _, task = await run(servers[0], duplicate_wait_ms=200)
    with pytest.raises(errors.DuplicateBroker, match="another one is alive"):
        await asyncio.wait_for(asyncio.shield(task), 5)


async def test_a_broker_that_was_succeeded_says_so_and_ends_when_no_former_lease_can_be_left(
    servers: list[ScriptedNameserver],
    run: Run,
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registration, task = await run(servers[0], duplicate_wait_ms=0)
    await until(lambda: registration.statistics().registered)
    before = servers[0].streams
    servers[0].failure = errors.DuplicateBroker("a later process took over")
    broker.due.set()
    began_s = time.monotonic()
    with pytest.raises(errors.DuplicateBroker):
        await task
    assert time.monotonic() - began_s >= LEASES_OF_OTHERS * LEASE_MS / 1_000
    assert servers[0].streams > before, "it did not ask again"
    assert "a later process took over" in caplog.text


async def test_a_registered_broker_outlasts_a_registration_that_a_restored_etcd_brings_back(
    servers: list[ScriptedNameserver], run: Run, broker: Broker
) -> None:
    registration, task = await run(servers[0], duplicate_wait_ms=0)
    await until(lambda: registration.statistics().registered)
    servers[0].failure = errors.DuplicateBroker("already registered")
    broker.due.set()
    before = servers[0].streams
    await until(lambda: servers[0].streams > before or task.done())
    servers[0].failure = None
    await until(lambda: registration.statistics().registered or task.done())
    assert not task.done()


async def test_a_log_that_no_nameserver_registers_is_told_of_and_the_broker_asks_again(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    servers[0].failure = errors.ReplicaIncomplete("it had more")
    _, task = await run(servers[0])
    await until(lambda: len(broker.incomplete) > 1)
    assert str(broker.incomplete[0]) == "it had more"
    assert not task.done(), "its folder is opened again under another name"


async def test_an_error_in_a_directive_ends_the_stream_like_any_other(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    servers[0].directive.status.code = common_pb2.SHUTTING_DOWN
    await run(servers[0])
    await until(lambda: servers[0].streams >= 2)
    assert broker.directives == []


async def test_a_stream_that_fails_as_the_run_is_cancelled_ends_the_run(
    servers: list[ScriptedNameserver], broker: Broker, run: Run
) -> None:
    """A broker that stops would otherwise wait for ever for its registration to end."""
    tasks: list[asyncio.Task[None]] = []

    async def fail_and_be_cancelled(_: nameserver_pb2.BrokerDirective) -> None:
        asyncio.get_running_loop().call_soon(tasks[0].cancel)  # while the heartbeats are ended
        raise errors.Unreachable("the stream fails")

    broker.on_directive = fail_and_be_cancelled  # type: ignore[method-assign, assignment]
    _, task = await run(servers[0])
    tasks.append(task)
    done, _ = await asyncio.wait((task,), timeout=5)
    assert done
    assert task.cancelled()


async def test_leaving_is_told_and_ends_the_run(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    registration, task = await run(servers[0])
    await until(lambda: registration.statistics().registered)
    async with asyncio.timeout(1):
        await registration.leave(5.0)
        await task
    assert [h.leaving for h in servers[0].heartbeats] == [False, True]
    assert not registration.statistics().registered


async def test_leaving_takes_no_longer_than_it_may_when_nobody_hears_it(
    servers: list[ScriptedNameserver], run: Run
) -> None:
    for server in servers:
        await server.stop()
    registration, task = await run(*servers)
    await until(lambda: registration.statistics().failures > 0)
    async with asyncio.timeout(2):
        await registration.leave(1.0)
        await task


@pytest.mark.parametrize(
    "settings",
    [{"nameservers": ()}, {"lease_duration_ms": 999}, {"answer_timeout_ms": 0},
     {"duplicate_wait_ms": -1}],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(settings))):
        RegistrationConfig(**settings)  # type: ignore[arg-type]
