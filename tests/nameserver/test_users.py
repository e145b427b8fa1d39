"""Users and policies in etcd: kept, sealed, and told to brokers without delay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.records import decode_user
from aerobee.access.sealing import ClusterSecrets, unseal
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.stored import Keys
from aerobee.v1 import access_pb2 as pb
from aerobee.v1 import access_pb2_grpc
from tests.nameserver.conftest import Broker, Nameserver
from tests.support.waiting import until

SECRET = "cluster-secret-of-a-test-" + "x" * 16


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "cluster-secret"
    path.write_text(SECRET + "\n")
    return str(path)


@pytest.fixture
async def server(shared_etcd: Any, start_nameserver: Any, secret_file: str) -> Nameserver:
    started: Nameserver = await start_nameserver(shared_etcd.endpoint, secret_file=secret_file)
    return started


@pytest.fixture
def users(server: Nameserver) -> Any:
    return access_pb2_grpc.AccessServiceStub(server.channel)


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    return caught.value.details() or ""


async def test_a_users_secret_is_told_once_and_sealed_in_etcd(
    users: Any, etcd: Etcd, cluster: str
) -> None:
    made = await users.CreateUser(pb.CreateUserRequest(name="shop", certificate_names=["CN=shop"]))
    assert len(made.secret) >= 40
    assert "already" in await refused(users.CreateUser(pb.CreateUserRequest(name="shop")))
    assert "CN=shop" in await refused(
        users.CreateUser(pb.CreateUserRequest(name="other", certificate_names=["CN=shop"]))
    )
    (listed,) = (await users.ListUsers(pb.ListUsersRequest())).users
    assert listed == made.user
    assert (listed.name, listed.enabled, listed.super, listed.secrets) == ("shop", True, False, 1)

    key = Keys(cluster).user("shop")
    entry = await etcd.get(key)
    assert entry is not None
    assert made.secret.encode() not in entry.value
    sealed = decode_user(entry.value).sealed
    assert unseal(sealed[0], "shop", ClusterSecrets.parse(SECRET)) == made.secret


async def test_secrets_are_exchanged_with_two_valid_at_once(users: Any) -> None:
    await users.CreateUser(pb.CreateUserRequest(name="shop", secret="first-secret-of-shop"))
    second = await users.RotateUser(pb.RotateUserRequest(name="shop"))
    assert second.user.secrets == 2
    third = await users.RotateUser(pb.RotateUserRequest(name="shop"))
    assert third.user.secrets == 2
    assert third.secret != second.secret
    one = await users.UpdateUser(pb.UpdateUserRequest(name="shop", forget_former_secret=True))
    assert one.secrets == 1
    off = await users.UpdateUser(pb.UpdateUserRequest(name="shop", enabled=False))
    assert not off.enabled
    words = await refused(users.RotateUser(pb.RotateUserRequest(name="shop", secret="short")))
    assert "short" not in words.split()


async def test_policies_say_who_may_what_and_go_with_their_user(users: Any) -> None:
    await users.CreateUser(pb.CreateUserRequest(name="shop"))
    orders = pb.AccessPolicy(
        user="shop", resource="Topic:orders*", actions="Pub,Sub", decision="Allow"
    )
    hidden = pb.AccessPolicy(
        user="shop", resource="Topic:orders-x", actions="All", decision="Deny",
        sources=["10.0.0.0/8"],
    )  # fmt: skip
    for policy in (orders, hidden):
        await users.PutPolicy(pb.PutPolicyRequest(policy=policy))
    listed = (await users.ListPolicies(pb.ListPoliciesRequest(user="shop"))).policies
    assert list(listed) == [orders, hidden]

    async def asked(resource: str, actions: str, source: str = "") -> tuple[bool, str]:
        answer = await users.TestAccess(
            pb.TestAccessRequest(user="shop", resource=resource, actions=actions, source=source)
        )
        return answer.allowed, answer.reason

    allow = "Allow Pub,Sub on Topic:orders* to shop"
    assert await asked("Topic:orders-x", "Pub", "192.168.0.1") == (True, allow)
    assert await asked("Topic:orders-x", "Pub", "10.1.1.1") == (
        False,
        "Deny All on Topic:orders-x to shop from 10.0.0.0/8",
    )
    assert await asked("Topic:orders", "Delete") == (False, "no policy allows it")
    assert "is not an action" in await refused(
        users.PutPolicy(
            pb.PutPolicyRequest(
                policy=pb.AccessPolicy(user="shop", resource="*", actions="X", decision="Deny")
            )
        )
    )
    remove = pb.RemovePolicyRequest(user="shop", resource="Topic:orders*")
    await users.RemovePolicy(remove)
    assert "no such policy" in await refused(users.RemovePolicy(remove))
    await users.DeleteUser(pb.DeleteUserRequest(name="shop"))
    assert "no user" in await refused(users.PutPolicy(pb.PutPolicyRequest(policy=orders)))
    await users.CreateUser(pb.CreateUserRequest(name="shop"))
    assert not (await users.ListPolicies(pb.ListPoliciesRequest())).policies


async def test_brokers_hear_of_each_change_in_less_than_a_second(
    users: Any, server: Nameserver, make_broker: Any, running: Any
) -> None:
    broker: Broker = make_broker("broker-a")
    await running(broker, server)

    def told() -> list[Any]:
        return [each.access for each in broker.directives if each.HasField("access")]

    await users.CreateUser(pb.CreateUserRequest(name="shop"))
    async with asyncio.timeout(1):
        await until(lambda: any(each.users for each in told()))
    await users.PutPolicy(
        pb.PutPolicyRequest(
            policy=pb.AccessPolicy(user="shop", resource="*", actions="All", decision="Deny")
        )
    )
    async with asyncio.timeout(1):
        await until(lambda: any(each.policies for each in told()))
    newest = told()[-1]
    assert [each.user for each in newest.users] == ["shop"]
    assert newest.version


async def test_without_a_cluster_secret_no_user_is_made(
    shared_etcd: Any, start_nameserver: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    stub = access_pb2_grpc.AccessServiceStub(server.channel)
    words = await refused(stub.CreateUser(pb.CreateUserRequest(name="shop")))
    assert "access.cluster_secret_file" in words
