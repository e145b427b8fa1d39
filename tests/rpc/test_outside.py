"""A server with two listeners: each call says through which it came, and each has its own TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from aerobee.broker.config import BrokerConfig
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import Method
from aerobee.nameserver.config import NameserverConfig
from aerobee.rpc.core.tls import ClientAuth
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.outside import came_outside
from aerobee.rpc.outside_config import OutsideTlsConfig
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.rpc.tls import NodeTls, dialled_tls
from aerobee.rpc.tls_config import NodeTlsConfig, TlsConfig
from aerobee.runtime.config import load_config
from aerobee.runtime.errors import InvalidArgument, Unreachable
from aerobee.v1 import broker_pb2
from tests.support.certificates import Certificate, issue
from tests.support.ports import free_port

SERVICE = "aerobee.v1.AdminService"
ASK = Method(f"/{SERVICE}/GetMessage", broker_pb2.GetMessageRequest, broker_pb2.StoredMessage)


class Servicer:
    async def GetMessage(self, request: Any, context: Any) -> broker_pb2.StoredMessage:
        return broker_pb2.StoredMessage(record=b"outside" if came_outside(context) else b"")


@asynccontextmanager
async def serving(tls: NodeTls) -> AsyncIterator[tuple[str, str]]:
    """The addresses inside and outside."""
    server = RpcServer(say_error, [SERVICE], tls=tls.accepted)
    handler = grpc.unary_unary_rpc_method_handler(
        Servicer().GetMessage,
        request_deserializer=broker_pb2.GetMessageRequest.FromString,
        response_serializer=broker_pb2.StoredMessage.SerializeToString,
    )
    server.server.add_registered_method_handlers(SERVICE, {"GetMessage": handler})
    outside = f"127.0.0.1:{free_port()}"
    try:
        port = await server.start("127.0.0.1:0")
        await server.start_outside(outside, tls.outside)
        yield f"127.0.0.1:{port}", outside
    finally:
        await server.stop(0)


async def came_from_outside(address: str, tls: TlsConfig | bool = False) -> bool:
    channels = Channels(tls=dialled_tls(tls))
    try:
        answer = await channels.call(address, ASK, broker_pb2.GetMessageRequest())
    finally:
        await channels.close()
    return answer.record == b"outside"


def trusting(one: Certificate) -> TlsConfig:
    return TlsConfig(ca=one.ca)


async def test_each_listener_says_so_and_has_the_tls_that_it_was_given(tmp_path: Path) -> None:
    own = issue(trustme.CA(), tmp_path / "own", "127.0.0.1")
    public = issue(trustme.CA(), tmp_path / "public", "127.0.0.1")
    node = NodeTlsConfig(
        certificate=str(own.certificate),
        key=str(own.key),
        ca=str(own.ca),
        client_auth=ClientAuth.REQUIRED,
    )
    outside_tls = OutsideTlsConfig(certificate=str(public.certificate), key=str(public.key))
    member = TlsConfig(ca=own.ca, certificate=own.certificate, key=own.key)

    async with serving(NodeTls(NodeTlsConfig())) as (inside, outside):
        assert not await came_from_outside(inside)
        assert await came_from_outside(outside)
    # One certificate for both.
    async with serving(NodeTls(node)) as (inside, outside):
        assert not await came_from_outside(inside, member)
        assert await came_from_outside(outside, member)
    # Nodes show certificates to each other; clients outside have none.
    async with serving(NodeTls(node, outside_tls)) as (inside, outside):
        assert not await came_from_outside(inside, member)
        assert await came_from_outside(outside, trusting(public))
        with pytest.raises(Unreachable):
            await came_from_outside(inside, trusting(own))
        with pytest.raises(Unreachable):
            await came_from_outside(outside, trusting(own))
    # Plain text inside alone.
    async with serving(NodeTls(NodeTlsConfig(), outside_tls)) as (inside, outside):
        assert not await came_from_outside(inside)
        assert await came_from_outside(outside, trusting(public))
        with pytest.raises(Unreachable):
            await came_from_outside(outside)


async def test_the_certificate_of_either_listener_is_followed(tmp_path: Path) -> None:
    authority = trustme.CA()
    public = issue(authority, tmp_path / "public", "127.0.0.1")
    outside_tls = OutsideTlsConfig(certificate=str(public.certificate), key=str(public.key))
    tls = NodeTls(NodeTlsConfig(), outside_tls)
    assert tls.expires is not None
    async with serving(tls) as (_, outside):
        assert await came_from_outside(outside, trusting(public))
        issue(authority, tmp_path / "public", "other.example")
        tls.refresh()
        with pytest.raises(Unreachable, match="mismatch"):
            await came_from_outside(outside, trusting(public))


def test_a_certificate_that_cannot_be_used_is_named_with_its_listener(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"outside\.tls\.certificate: cannot read"):
        NodeTls(
            NodeTlsConfig(), OutsideTlsConfig(certificate=str(tmp_path / "no"), key=str(tmp_path))
        )


@pytest.mark.parametrize("kind", [BrokerConfig, NameserverConfig])
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"outside.listen": "0.0.0.0:0"}, "outside.listen must be host:port with a port of 1"),
        ({"outside.listen": "127.0.0.1:7"}, "listen and outside.listen must have different ports"),
        ({"outside.tls.certificate": "c"}, "outside.tls.key belong together"),
        (
            {"outside.tls.client_auth": ClientAuth.REQUIRED},
            "outside.tls.client_auth needs outside.tls.ca",
        ),
        (
            {"outside.listen": "127.0.0.1:8", "grpc.engine": Engine.GRPCIO},
            "outside.listen needs grpc.engine own",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(
    kind: type[Any], overrides: dict[str, object], words: str
) -> None:
    given = {"listen": "127.0.0.1:7", **overrides}
    if kind is BrokerConfig:
        given["store_root"] = "/nowhere"
        if "outside.listen" in given:
            given["outside.address"] = "lb:1"
    with pytest.raises(InvalidArgument, match=words):
        load_config(kind, environment_prefix="AEROBEE", overrides=given)


@pytest.mark.parametrize("key", ["listen", "address"])
def test_a_broker_outside_has_a_port_and_an_address(key: str) -> None:
    with pytest.raises(InvalidArgument, match="belong together"):
        load_config(
            BrokerConfig,
            environment_prefix="AEROBEE",
            overrides={"store_root": "/nowhere", f"outside.{key}": "127.0.0.1:8"},
        )
