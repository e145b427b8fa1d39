"""A client certificate proves a user without a signature, where a node asks for one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.credentials import Anonymous
from aerobee.access.node import signer_of
from aerobee.access.nodes import NodeName
from aerobee.access.sealing import ClusterSecrets
from aerobee.client_core import TlsConfig
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import SEND
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import AccessDenied, Unauthenticated
from aerobee.runtime.watched_file import WatchedFile
from aerobee.v1 import broker_pb2
from tests.access.test_node_identity import REGISTER, REPLICATE, says
from tests.support.local_up import numbers, received, running, sent

pytestmark = pytest.mark.slow

TLS_FILES = ("ca", "certificate", "key")


def test_commands_show_the_certificate_of_a_user(tmp_path: Path) -> None:
    """`up --tls --access` asks for one, and says how an operator sends without."""
    with running(tmp_path, "--tls", "--access") as up:
        secret, ca = up.data / "access" / "cluster-secret", up.data / "tls" / "ca.crt"
        next_step = up.said().partition("echo hello | ")[2].splitlines()[0]
        assert next_step == (
            f"env AEROBEE_CLUSTER_SECRET_FILE={secret} aerobee produce trial "
            f"--nameserver {up.document()['nameserver']} --tls-ca {ca}"
        )
        operator = {"AEROBEE_CLUSTER_SECRET_FILE": str(secret)}
        up.environment = operator
        up.run("produce", "greetings", given="hello\n")
        up.run("user", "create", "shop", "--certificate-name", "client")
        up.run("acl", "add", "shop", "Topic:greetings", "Pub,Sub")
        up.run("acl", "add", "shop", "Group:shop", "Sub")
        up.environment = {}  # but for the certificate, whose name is `client`
        up.run("produce", "greetings", given="again\n")
        assert sorted(received(up, "greetings", "shop", 2)) == ["again", "hello"]
        assert "user shop may not" in up.run("topic", "create", "x", expect=range(1, 5)).stderr
        console = up.run("console", "--port", "0", expect=range(1, 5)).stderr
        assert "every visitor would be that user" in console
        up.environment = {"AEROBEE_TLS_CERTIFICATE": "", "AEROBEE_TLS_KEY": ""}
        refused = up.run("produce", "greetings", given="x\n", expect=range(1, 5))
        assert "does not say who makes it" in refused.stderr
        up.environment = operator
        up.run("user", "disable", "shop")
        up.environment = {}
        assert "disabled" in up.run("produce", "greetings", given="x\n", expect=range(1, 5)).stderr


@pytest.mark.thorough
def test_the_cluster_secret_alone_makes_no_node_and_no_operator(tmp_path: Path) -> None:
    """Nodes must show their own certificates: a node that was taken over is no other by the secret
    that all have."""
    named = ("--broker-set", "access.node_certificates=true")
    with running(tmp_path, "--tls", "--access", "--replicas", "2", *named) as up:
        secret = up.data / "access" / "cluster-secret"
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(secret)
        up.run("topic", "create", "orders")  # by the operator's certificate
        sent(up, "orders", numbers(20))
        assert sorted(received(up, "orders", "g", 20)) == sorted(numbers(20))
        assert [each["inSync"] for each in up.json("cluster", "show")["brokers"]] == [True, True]
        document = up.document()
        file = WatchedFile(str(secret), ClusterSecrets.parse, time.monotonic)
        slave = NodeName.broker("aerobee", "broker-a", 1)
        signer = signer_of(file, slave, SystemClock().now_ms)
        ca, own, key = (Path(document["tls"][name]).read_bytes() for name in TLS_FILES)
        for shown, certificate in (
            ("no certificate", (None, None)),
            ("aerobee://aerobee/operator", (key, own)),
        ):
            told = grpc.ssl_channel_credentials(ca, *certificate)
            for path in (REGISTER, REPLICATE):
                broker = document["brokers"][0]["address"]
                address = document["nameserver"] if path == REGISTER else broker
                with grpc.secure_channel(address, told) as channel:
                    call: Any = channel.stream_stream(path)
                    request = says(path, "aerobee", "broker-a", 1)
                    data = request if isinstance(request, bytes) else request.SerializeToString()
                    with pytest.raises(grpc.RpcError) as caught:
                        next(iter(call(iter((data,)), metadata=signer.metadata(path), timeout=20)))
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, caught.value
                assert (
                    "broker:aerobee/broker-a/1 must show a certificate with the URI "
                    f"aerobee://aerobee/broker/broker-a/1, and shows {shown}"
                ) in str(caught.value.details())
        up.environment |= {"AEROBEE_TLS_CERTIFICATE": "", "AEROBEE_TLS_KEY": ""}
        refused = up.run("topic", "list", expect=range(1, 5))
        assert "operator:command must show a certificate" in refused.stderr


async def test_a_certificates_name_is_a_user(tmp_path: Path) -> None:
    asking = ("--broker-set", "tls.client_auth=required")
    with running(tmp_path, "--tls", "--access", *asking) as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        document = up.document()
        address = document["brokers"][0]["address"]
        up.run("topic", "create", "orders")
        channels = Channels(credentials=Anonymous(), tls=dialled_tls(TlsConfig(**document["tls"])))
        request = broker_pb2.SendRequest(topic="orders", body=b"x")
        try:
            with pytest.raises(Unauthenticated):
                await channels.call(address, SEND, request)
            up.run("user", "create", "shop", "--certificate-name", "client")
            with pytest.raises(AccessDenied, match="user shop"):
                await channels.call(address, SEND, request)
            up.run("acl", "add", "shop", "Topic:orders", "Pub")
            assert (await channels.call(address, SEND, request)).message_id
            lines = (up.data / "audit-log" / "broker-a.log").read_text().splitlines()
            told = [line for line in map(json.loads, lines) if line["event"] == "refusal"]
            assert [(line["caller"], line["tls"], line["certificate"]) for line in told] == [
                ("anonymous", True, "client"),
                ("user shop", True, "client"),
            ]
        finally:
            await channels.close()
