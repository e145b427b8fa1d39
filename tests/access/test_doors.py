"""What a hostile tester could do who only reached the ports: each door, without credentials and
with those of another role."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from aerobee.access.credentials import (
    CLUSTER_SECRET_VARIABLE,
    FILE_VARIABLE,
    Anonymous,
    Credentials,
    credentials_of_environment,
)
from aerobee.access.needs import Who
from aerobee.access.node import signer_of
from aerobee.access.nodes import NodeName
from aerobee.access.sealing import ClusterSecrets
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.watched_file import WatchedFile
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.v1 import (
    access_pb2,
    audit_pb2,
    broker_pb2,
    common_pb2,
    nameserver_pb2,
    replication_pb2,
)
from apache.rocketmq.v2 import definition_pb2, service_pb2
from tests.access.test_needs import TABLE
from tests.access.test_node_identity import ALTER_IN_SYNC_SET, REGISTER, REPLICATE, says
from tests.support.local_up import Up, running
from tests.support.plain_requests import plain_request

pytestmark = pytest.mark.slow

UNAUTHORIZED = definition_pb2.UNAUTHORIZED
AT_BROKERS = (broker_pb2, audit_pb2, replication_pb2, service_pb2)
AT_NAMESERVERS = (nameserver_pb2, access_pb2, service_pb2)
SELF_DESCRIPTIONS = (REGISTER, ALTER_IN_SYNC_SET, REPLICATE)
CLIENT = (("x-mq-client-id", "stranger"), ("x-mq-language", "PYTHON"))
FAILS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access", "--replicas", "2") as up:
        up.environment[CLUSTER_SECRET_VARIABLE] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "bank")
        yield up


@pytest.fixture(scope="module")
def callers(up: Up, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    """Strangers, a user without any right, a super user, an operator."""
    folder = tmp_path_factory.mktemp("credentials")

    def user(name: str, *flags: str) -> Credentials:
        file = folder / name
        up.run("user", "create", name, "--credentials-file", str(file), *flags)
        return credentials_of_environment({FILE_VARIABLE: str(file)})

    other = folder / "other-cluster"
    other.write_text("f" * 64)
    return {
        "stranger": Anonymous(),
        "other cluster": credentials_of_environment({CLUSTER_SECRET_VARIABLE: str(other)}),
        "user": user("nobody"),
        "super user": user("root", "--super"),
        "operator": credentials_of_environment(up.environment),
    }


TEXTS = {
    "group": "readers", "user": "nobody", "broker_name": "broker-a", "cluster": "aerobee",
    "recall_handle": RecallHandle("bank", "broker-a", 5, "key").encode(),
    "resource": "*", "actions": "All", "decision": "Allow", "resource_namespace": "",
}  # fmt: skip


def answer_of(channel: grpc.Channel, path: str, method: MethodDescriptor, who: Credentials) -> str:
    """`refused` by the door, or what else came."""
    request = plain_request(method.input_type, TEXTS, otherwise="bank")
    call: Any = channel.stream_stream(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    metadata = (*CLIENT, *who.metadata(path))
    try:
        first: Any = next(iter(call(iter((request,)), metadata=metadata, timeout=20)), None)
    except grpc.RpcError as error:
        return "refused" if error.code() in FAILS else f"{error.code()} {error.details()}"
    if first is not None and "rocketmq" in path and first.status.code == UNAUTHORIZED:
        return "refused"
    if path.endswith("/Membership") and first.failed.code == common_pb2.ACCESS_DENIED:
        return "refused"  # as members hear all errors
    return f"answered {first}"


def doors(up: Up) -> Iterator[tuple[grpc.Channel, str, MethodDescriptor]]:
    """Each method that is served, at a nameserver and at a broker."""
    document = up.document()
    for address, files in (
        (document["nameserver"], AT_NAMESERVERS),
        (document["brokers"][0]["address"], AT_BROKERS),
    ):
        with grpc.insecure_channel(address) as channel:
            for file in files:
                for service in file.DESCRIPTOR.services_by_name.values():
                    for method in service.methods:
                        yield channel, f"/{service.full_name}/{method.name}", method


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["stranger", "other cluster", "user"])
def test_every_door_is_shut_for(up: Up, callers: dict[str, Credentials], who: str) -> None:
    before = state_of(up)
    opened = {}
    count = 0
    for channel, path, method in doors(up):
        count += 1
        answer = answer_of(channel, path, method, callers[who])
        if answer != "refused":
            opened[path] = answer
    assert count > 60
    not_served = {path for path, answer in opened.items() if "UNIMPLEMENTED" in answer}
    assert {path: opened[path] for path in opened.keys() - not_served} == {}
    assert all("rocketmq" in path for path in not_served), not_served
    assert state_of(up) == before


@pytest.mark.parametrize("who", ["super user", "operator"])
def test_nodes_doors_are_shut_for(up: Up, callers: dict[str, Credentials], who: str) -> None:
    """Whatever rights they have: Register deposed a live master, Replicate acknowledged for a
    slave, AlterInSyncSet took replicas out."""
    before = state_of(up)
    checked = set()
    for channel, path, method in doors(up):
        if TABLE[path].who in (Who.BROKERS, Who.NODES):
            assert answer_of(channel, path, method, callers[who]) == "refused", path
            checked.add(path.rpartition("/")[2])
    assert checked == {"Register", "Replicate", "AlterInSyncSet", "Rings"}
    assert state_of(up) == before


def test_a_live_masters_name_deposes_nobody(up: Up, callers: dict[str, Credentials]) -> None:
    """The attack as it was: all that Register needs was told by DescribeCluster."""
    before = state_of(up)
    path = "/aerobee.v1.NameserverService/"
    with grpc.insecure_channel(up.document()["nameserver"]) as channel:
        describe = channel.unary_unary(
            path + "DescribeCluster",
            request_serializer=nameserver_pb2.DescribeClusterRequest.SerializeToString,
            response_deserializer=nameserver_pb2.ClusterDescription.FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            describe(nameserver_pb2.DescribeClusterRequest())
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        known = describe(
            nameserver_pb2.DescribeClusterRequest(),
            metadata=callers["operator"].metadata(path + "DescribeCluster"),
        )
        master = next(
            each for each in known.brokers if each.identity.broker_id == known.groups[0].master_id
        )
        heartbeat = nameserver_pb2.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(
                cluster="aerobee",
                broker_name="broker-a",
                broker_id=master.identity.broker_id,
                instance="f" * 16,
            ),
            predecessor=master.identity.instance,
            address="127.0.0.1:1",
            opened_end=2**40,
        )
        register = channel.stream_stream(
            path + "Register",
            request_serializer=nameserver_pb2.BrokerHeartbeat.SerializeToString,
            response_deserializer=nameserver_pb2.BrokerDirective.FromString,
        )
        for who in ("stranger", "other cluster", "user", "super user", "operator"):
            with pytest.raises(grpc.RpcError) as caught:
                next(
                    register(iter((heartbeat,)), metadata=callers[who].metadata(path + "Register"))
                )
            assert caught.value.code() in FAILS, who
    assert state_of(up) == before


@pytest.mark.parametrize("path", SELF_DESCRIPTIONS)
def test_a_broker_with_the_secret_speaks_for_itself_alone(up: Up, path: str) -> None:
    """broker-b's proof is good: it does not make it broker-a."""
    before = state_of(up)
    document = up.document()
    at_broker = path.startswith("/aerobee.v1.Replication")
    address = document["brokers"][0]["address"] if at_broker else document["nameserver"]
    secret = WatchedFile(
        up.environment[CLUSTER_SECRET_VARIABLE], ClusterSecrets.parse, time.monotonic
    )
    broker_b = NodeName.broker("aerobee", "broker-b", 0)
    signer = signer_of(secret, broker_b, SystemClock().now_ms)
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(path)
        request = says(path, "aerobee", "broker-a", 1)
        sent = request if isinstance(request, bytes) else request.SerializeToString()
        with pytest.raises(grpc.RpcError) as caught:
            next(iter(call(iter((sent,)), metadata=signer.metadata(path), timeout=20)))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    said = str(caught.value.details())
    assert "broker:aerobee/broker-b/0 may not speak for broker:aerobee/broker-a/1" in said
    assert state_of(up) == before


def test_etcd_has_no_secret_in_clear(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    up.run("user", "create", "leaked", "--credentials-file", str(file))
    secret = file.read_text().split()[-1].encode()
    kept = [path.read_bytes() for path in (up.data / "etcd").rglob("*") if path.is_file()]
    assert any(b"/users/leaked" in content for content in kept)
    assert not any(secret in content for content in kept)


def state_of(up: Up) -> object:
    """Who is in the cluster, who is master, in sync; topics, users, policies."""
    cluster = up.json("cluster", "show")
    return (
        [
            (each["broker"], each.get("role"), each.get("epoch"), each.get("address"))
            for each in cluster["brokers"]
        ],
        json.dumps(up.json("topic", "list")),
        json.dumps(up.json("user", "list")),
        json.dumps(up.json("acl", "list")),
    )
