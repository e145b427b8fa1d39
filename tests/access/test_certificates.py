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
from tests.support.local_up import running

pytestmark = pytest.mark.slow


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
