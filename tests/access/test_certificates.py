"""A client certificate proves a user without a signature, where a node asks for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aerobee.access.credentials import Anonymous
from aerobee.client_core import TlsConfig
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import SEND
from aerobee.runtime.errors import AccessDenied, Unauthenticated
from aerobee.runtime.tls import dialled_tls
from aerobee.v1 import broker_pb2
from tests.support.local_up import received, running

pytestmark = pytest.mark.slow


def test_commands_show_the_certificate_of_a_user(tmp_path: Path) -> None:
    """`up --tls --access` asks for one, and says how an operator sends without."""
    with running(tmp_path, "--tls", "--access") as up:
        secret, ca = up.data / "access" / "cluster-secret", up.data / "tls" / "ca.crt"
        next_step = up.said().partition("echo hello | ")[2].splitlines()[0]
        assert next_step == (
            f"env AEROBEE_CLUSTER_SECRET_FILE={secret} aerobee produce greetings "
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
        up.environment = {"AEROBEE_TLS_CERTIFICATE": "", "AEROBEE_TLS_KEY": ""}
        refused = up.run("produce", "greetings", given="x\n", expect=range(1, 5))
        assert "does not say who makes it" in refused.stderr
        up.environment = operator
        up.run("user", "disable", "shop")
        up.environment = {}
        assert "disabled" in up.run("produce", "greetings", given="x\n", expect=range(1, 5)).stderr


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
