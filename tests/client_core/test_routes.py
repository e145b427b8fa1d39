"""Routes are asked for once, kept fresh by a watch, and outlive the nameservers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from aerobee.client_core import ClusterConnection, MessageQueue
from aerobee.cluster_view.nameservers import parse_addresses
from aerobee.cluster_view.route import Endpoint, NewestEpochs, TopicRoute
from aerobee.runtime import errors
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver


async def test_a_route_is_asked_for_once(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = await asyncio.gather(*(connection.routes.route("orders") for _ in range(20)))
    assert nameserver.queries == 1
    assert all(route is routes[0] for route in routes)
    assert routes[0].queues == (
        MessageQueue("orders", "broker-a", 0),
        MessageQueue("orders", "broker-a", 1),
    )
    assert routes[0].master_address("broker-a") == "127.0.0.1:1"
    with pytest.raises(errors.NoBrokerAvailable, match="broker-x"):
        routes[0].master_address("broker-x")


async def test_a_change_is_pushed_and_told(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    before = await routes.route("orders")
    with routes.changes() as changes:
        nameserver.topics["orders"].queues_by_broker["broker-a"] = 5
        await nameserver.publish()
        async with asyncio.timeout(5):
            assert await anext(changes) == {"orders"}
    after = routes.cached("orders")
    assert after is not None
    assert after is not before
    assert len(after.queues) == 5
    await nameserver.publish()
    await asyncio.sleep(0.05)
    assert routes.cached("orders") is after, "an answer without news changes nothing"


async def test_a_deleted_topic_is_forgotten_and_found_again(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    await routes.route("orders")
    with routes.changes() as changes:
        topic = nameserver.topics.pop("orders")
        await nameserver.publish()
        async with asyncio.timeout(5):
            assert await anext(changes) == {"orders"}
            assert routes.cached("orders") is None
            with pytest.raises(errors.TopicNotFound, match="'orders' does not exist"):
                await routes.route("orders")
            nameserver.topics["orders"] = topic
            await nameserver.publish()
            assert await anext(changes) == {"orders"}
    assert routes.cached("orders") is not None


async def test_a_topic_that_is_missing_at_first_is_watched(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    with pytest.raises(errors.TopicNotFound):
        await routes.route("later")
    with routes.changes() as changes:
        nameserver.topics["later"] = nameserver.topics["orders"]
        await nameserver.publish()
        async with asyncio.timeout(5):
            assert await anext(changes) == {"later"}


async def test_further_topics_join_the_watch(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    for number in range(10):
        await connection.routes.route(f"topic-{number}", create_missing=True)
    await until(lambda: nameserver.watches >= 2)
    with connection.routes.changes() as changes:
        await asyncio.sleep(0.1)
        nameserver.topics["topic-9"].perm = 4
        await nameserver.publish()
        async with asyncio.timeout(5):
            assert await anext(changes) == {"topic-9"}
    assert nameserver.watches <= 4, "topics that come together are watched together"


async def test_what_is_known_outlives_the_nameserver_and_its_watch_comes_back(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    known = await routes.route("orders")
    await until(lambda: nameserver.watches == 1)
    await nameserver.stop()
    routes.invalidate("orders")
    assert await routes.route("orders", timeout_ms=300) is known
    with pytest.raises(errors.Unreachable):
        await routes.refresh("orders", timeout_ms=300)
    with pytest.raises(errors.Unreachable):
        await routes.route("unknown", timeout_ms=300)
    nameserver.topics["orders"].queues_by_broker["broker-a"] = 7
    nameserver.version += 1
    await nameserver.start()
    await until(lambda: len((routes.cached("orders") or known).queues) == 7)


async def test_older_answers_change_nothing_but_a_new_watch_does(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    nameserver.version = 50
    known = await routes.route("orders")
    await until(lambda: nameserver.watches == 1)
    nameserver.topics["orders"].queues_by_broker["broker-a"] = 9
    nameserver.version = 40
    assert await routes.refresh("orders") is known
    # etcd was restored from an old backup: a watch that begins anew is believed.
    await nameserver.stop()
    await nameserver.start()
    await until(lambda: len((routes.cached("orders") or known).queues) == 9)


async def test_a_stale_nameserver_does_not_make_topics_disappear(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes = connection.routes
    known = await routes.route("orders")
    nameserver.stale = True
    del nameserver.topics["orders"]
    await nameserver.publish()
    await asyncio.sleep(0.05)
    assert routes.cached("orders") is known


async def test_any_one_nameserver_is_enough(nameserver: FakeNameserver) -> None:
    addresses = ["127.0.0.1:1", nameserver.address, "127.0.0.1:2"]
    for seed in range(3):
        async with ClusterConnection(addresses, chance=random.Random(seed)) as connection:
            route = await connection.routes.route("orders", timeout_ms=3_000)
            assert len(route.queues) == 2
            with connection.routes.changes() as changes:
                await until(lambda: nameserver.watches > 0)
                nameserver.topics["orders"].perm ^= 2
                await nameserver.publish()
                async with asyncio.timeout(5):
                    await anext(changes)
            nameserver.watches = 0


async def test_a_nameserver_without_etcd_is_passed_over(nameserver: FakeNameserver) -> None:
    other = await type(nameserver)(
        refuse=errors.RegistryUnavailable("etcd is away"), topics=nameserver.topics
    ).start()
    try:
        for seed in range(4):
            addresses = [other.address, nameserver.address]
            async with ClusterConnection(addresses, chance=random.Random(seed)) as connection:
                assert await connection.routes.route("orders")
        async with ClusterConnection(other.address) as connection:
            with pytest.raises(errors.RegistryUnavailable, match="etcd is away"):
                await connection.routes.route("orders")
    finally:
        await other.stop()


async def test_illegal_names_are_refused_without_asking(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    with pytest.raises(errors.IllegalName):
        await connection.routes.route("a/b")
    assert nameserver.queries == 0


async def test_a_closed_connection_says_so(nameserver: FakeNameserver) -> None:
    async with ClusterConnection(nameserver.address) as connection:
        await connection.routes.route("orders")
    with pytest.raises(errors.Unreachable, match="closed"):
        await connection.routes.refresh("orders")


async def test_the_users_own_error_leaves_the_connection_as_it_is(
    nameserver: FakeNameserver,
) -> None:
    async def fail() -> None:
        async with ClusterConnection(nameserver.address):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        (" a:1 ; b:2,a:1;", ("a:1", "b:2")),
        (["[::1]:8081", "c:3"], ("[::1]:8081", "c:3")),
    ],
)
def test_addresses_come_as_text_or_list(text: str | list[str], addresses: tuple[str, ...]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    "text",
    ["", [], "host", "host:", ":1", "host:0", "host:65536", "a:b", "[1:2:3]:8081", "127.0.0.1:080"],
)
def test_what_is_no_address_is_refused(text: str | list[str]) -> None:
    with pytest.raises(errors.InvalidArgument):
        ClusterConnection(text)


def group_of(*replicas: tuple[int, int, bool], queues: int = 1) -> TopicRoute:
    """A route over one group: broker id, epoch, whether it is master."""
    endpoints = tuple(
        Endpoint("broker-a", broker_id, f"127.0.0.1:{broker_id + 1}", is_master, epoch)
        for broker_id, epoch, is_master in replicas
    )
    return TopicRoute("orders", 6, False, {}, {"broker-a": queues}, endpoints)


def test_a_group_may_have_no_master_and_an_older_one_counts_no_more() -> None:
    route = group_of((0, 4, True), (1, 5, False), (2, 5, False))
    assert route.master("broker-a") is None
    assert route.epoch("broker-a") == 5
    assert [one.broker_id for one in route.slaves("broker-a")] == [0, 1, 2]
    with pytest.raises(errors.NoBrokerAvailable, match="no live master"):
        route.master_address("broker-a")


def test_a_newer_epoch_wins_over_an_older_one_that_comes_later() -> None:
    epochs = NewestEpochs()
    newer = group_of((0, 5, False), (1, 5, True))
    assert epochs.pass_on(newer) is newer
    older = group_of((0, 4, True), (1, 4, False), queues=3)
    passed = epochs.pass_on(older)
    assert passed.master("broker-a") == newer.master("broker-a")
    assert len(passed.queues) == 3, "what is not the group's is taken as it comes"
    masterless = group_of((0, 5, False))
    assert epochs.pass_on(masterless) is masterless
    nobody = group_of()
    assert epochs.pass_on(nobody) is nobody
    assert epochs.pass_on(older).master("broker-a") is None


async def test_the_watch_of_a_nameserver_that_is_behind_brings_no_old_master_back(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    nameserver.replicas = [("broker-a", 0, 4, False), ("broker-a", 1, 5, True)]
    nameserver.version = 100
    route = await connection.routes.route("orders")
    master = route.master("broker-a")
    assert master is not None
    assert master.broker_id == 1
    await until(lambda: nameserver.watches == 1)
    port = nameserver.port
    await nameserver.stop()
    nameserver.replicas = [("broker-a", 0, 4, True)]
    nameserver.version = 50
    nameserver.port = port
    await nameserver.start()
    await until(lambda: nameserver.watches == 2)
    await asyncio.sleep(0.1)
    connection.routes.invalidate("orders")
    assert (await connection.routes.route("orders")).master("broker-a") == master


async def test_who_needs_a_master_waits_for_one(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    nameserver.replicas = [("broker-a", 0, 5, False), ("broker-a", 1, 5, False)]
    routes = connection.routes
    with pytest.raises(errors.NoBrokerAvailable, match="no live master"):
        await routes.master("orders", "broker-a", timeout_ms=100)
    with pytest.raises(errors.NoBrokerAvailable, match="broker-x"):
        await routes.master("orders", "broker-x", timeout_ms=60_000)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(routes.master("orders", "broker-a", timeout_ms=5_000))
        await asyncio.sleep(0.05)
        nameserver.replicas = [("broker-a", 0, 6, False), ("broker-a", 1, 6, True)]
        await nameserver.publish()
    assert waiting.result().broker_id == 1
    assert waiting.result().epoch == 6


async def test_a_block_for_a_master_ends_when_the_route_replaces_it(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    nameserver.replicas = [("broker-a", 0, 5, True), ("broker-a", 1, 5, False)]
    routes = connection.routes
    master = await routes.master("orders", "broker-a")
    await until(lambda: nameserver.watches == 1)
    steps: list[str] = []

    async def stay() -> None:
        async with asyncio.timeout(5), routes.while_master("orders", master):
            nameserver.replicas = [("broker-a", 0, 5, False), ("broker-a", 1, 5, False)]
            await nameserver.publish()
            await asyncio.sleep(0.1)
            steps.append("nobody has replaced it")
            nameserver.replicas = [("broker-a", 0, 6, False), ("broker-a", 1, 6, True)]
            await nameserver.publish()
            await asyncio.sleep(60)
            steps.append("it stayed")

    with pytest.raises(errors.NotMaster, match="no longer the master"):
        await stay()
    assert steps == ["nobody has replaced it"]
    with pytest.raises(errors.NotMaster):
        await stay()


async def test_each_caller_waits_for_its_own_time_only_while_a_nameserver_hangs(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    routes, loop = connection.routes, asyncio.get_running_loop()
    nameserver.hangs = True

    async def ask(number: int) -> float:
        await asyncio.sleep(number * 0.01)
        before_s = loop.time()
        with pytest.raises((errors.DeadlineExceeded, errors.Unreachable)):
            await routes.refresh("orders", timeout_ms=300 + 20 * (number % 3))
        return loop.time() - before_s

    # Who asks first has the least time, or does not wait at all; the last has plenty.
    brief = asyncio.ensure_future(routes.refresh("orders", timeout_ms=3_000))
    await asyncio.sleep(0.01)
    patient = asyncio.ensure_future(routes.refresh("orders", timeout_ms=3_000))
    await asyncio.sleep(0.01)
    brief.cancel()
    took_s = await asyncio.gather(*(ask(number) for number in range(12)))
    assert max(took_s) < 0.7
    assert not patient.done()
    nameserver.hangs = False
    assert (await patient).queues


async def test_a_question_that_failed_at_once_is_not_repeated_by_all_who_waited(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    nameserver.refuse = errors.RegistryUnavailable("etcd is away")
    outcomes = await asyncio.gather(
        *(connection.routes.refresh("orders") for _ in range(20)), return_exceptions=True
    )
    assert nameserver.queries == 1
    assert all(isinstance(outcome, errors.RegistryUnavailable) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 20
