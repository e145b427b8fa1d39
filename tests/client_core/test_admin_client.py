"""Administration from Python: dataclasses in and out, no protobuf to be seen."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import typing
from typing import Any

import pytest

from aerobee import (
    AdminClient,
    BackOff,
    BlockingAdminClient,
    MessageQueue,
    Policy,
    Topic,
    errors,
)
from aerobee.client_core import ClusterConnection
from aerobee.domain.names import SYSTEM_GROUP_PREFIX


def calls_of(part: object) -> list[Any]:
    return [
        each
        for name, each in inspect.getmembers(type(part), inspect.isfunction)
        if not name.startswith("_")
    ]


async def test_no_signature_shows_protobuf() -> None:
    admin = AdminClient("127.0.0.1:1")
    parts = [each for name, each in vars(admin).items() if not name.startswith("_")]
    assert len(parts) == 14
    calls = [call for part in [admin, *parts] for call in calls_of(part)]
    assert len(calls) > 40
    for call in calls:
        for name, hint in typing.get_type_hints(call).items():
            for kind in [hint, *typing.get_args(hint)]:
                assert "_pb2" not in getattr(kind, "__module__", ""), f"{call}: {name}"
                if dataclasses.is_dataclass(kind):
                    inner = typing.get_type_hints(kind).values()
                    assert not [each for each in inner if "_pb2" in str(each)], kind


async def test_topics_are_created_changed_and_deleted(served: ClusterConnection) -> None:
    (address,) = served.nameservers.addresses
    async with AdminClient(address, served.cluster) as admin:
        made = await admin.topics.create("invoices", queues=2)
        assert made == Topic("invoices", {"broker-a": 2}, "rw", False, {})
        assert (await admin.topics.update("invoices", permission="r")).permission == "r"
        assert (await admin.topics.get("invoices")).permission == "r"
        with pytest.raises(errors.InvalidArgument, match="permission must be one of rw, r, w"):
            await admin.topics.update("invoices", permission="x")  # type: ignore[arg-type]
        await admin.topics.delete("invoices")
        with pytest.raises(errors.TopicNotFound):
            await admin.topics.get("invoices")


async def test_a_topic_says_where_its_queues_are(served: ClusterConnection) -> None:
    (address,) = served.nameservers.addresses
    async with AdminClient(address, served.cluster) as admin:
        described = await admin.topics.describe("orders")
        assert [each.queue for each in described.queues] == [
            MessageQueue("orders", "broker-a", 0),
            MessageQueue("orders", "broker-a", 1),
        ]
        (broker_address,) = {each.address for each in described.queues}
        assert broker_address is not None
        statistics = await admin.brokers.statistics(broker_address)
        assert (statistics.is_writable, statistics.master, statistics.replicas) == (True, None, ())
        cleaned = await admin.brokers.clean(broker_address)
        assert (cleaned.removed_segments, cleaned.removed_unread) == (0, ())
        with pytest.raises(errors.InvalidArgument, match="registered are: broker-a"):
            await admin.brokers.clean("broker-z")


async def test_groups_are_described_without_those_of_the_system(served: ClusterConnection) -> None:
    (address,) = served.nameservers.addresses
    system = f"{SYSTEM_GROUP_PREFIX}probe"
    async with AdminClient(address, served.cluster) as admin:
        queue = MessageQueue("orders", "broker-a", 1)
        for group in ("readers", system):
            await admin.offsets.reset(group, {queue: 0})
        assert await admin.groups.list() == ["readers"]
        assert await admin.groups.list(with_own=True) == [system, "readers"]
        (readers,) = await admin.groups.describe_all()
        assert (readers.name, readers.topics, readers.lag) == ("readers", ("orders",), 0)
        assert await admin.groups.removed_unread("readers") == {}
        assert await admin.groups.committed_offsets("readers", "orders") == {queue: 0}
        some = [("broker-a", 1)]
        assert await admin.groups.delete_offsets("readers", "orders", some) == {queue: 0}
        with pytest.raises(errors.GroupNotFound):
            await admin.groups.committed_offsets("readers", "orders")


async def test_a_policy_is_a_value() -> None:
    assert Policy(user="a", resource="Topic:x", actions="Pub") == Policy(
        user="a", resource="Topic:x", actions="Pub", decision="Allow", sources=()
    )
    assert BackOff(1, 2).multiplier == 2


async def test_a_script_asks_without_an_event_loop(served: ClusterConnection) -> None:
    (address,) = served.nameservers.addresses

    def script() -> list[str]:
        with BlockingAdminClient(address, served.cluster) as admin:
            admin.topics.create("script", queues=1)
            assert admin.call(lambda admin: admin.topics.get("script")).queues == 1
            assert list(admin.dead_letters.find("readers")) == []
            with pytest.raises(errors.TopicNotFound):
                admin.topics.get("no such topic")
            return [each.name for each in admin.topics.list()]

    assert {"orders", "script"} <= {*await asyncio.to_thread(script)}


async def test_a_topic_may_be_created_by_all_who_need_it(served: ClusterConnection) -> None:
    (address,) = served.nameservers.addresses
    async with AdminClient(address, served.cluster) as admin:
        made = await admin.topics.create("shared", queues=2, exist_ok=True)
        assert await admin.topics.create("shared", queues=5, exist_ok=True) == made
        with pytest.raises(errors.TopicExists):
            await admin.topics.create("shared")
        with pytest.raises(errors.IllegalName):
            await admin.topics.create("a b", exist_ok=True)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8081", "127.0.0.1:8081/", "grpc://mq:8081"])
def test_a_url_is_refused_when_the_client_is_made(address: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="is a URL or a path: write host:port"):
        AdminClient(address)
