"""TLS as nodes and clients are configured for it: who is admitted, what they are told, and files
that change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aerobee.nameserver.config import NameserverConfig
from aerobee.rpc.config_risks import common_risks
from aerobee.rpc.core.limits import LimitObserver
from aerobee.rpc.core.tls import ClientAuth
from aerobee.rpc.health_check import check_health
from aerobee.rpc.metrics_endpoint import serve_metrics
from aerobee.rpc.node_ports import serve_node_ports
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.serving import RpcServer
from aerobee.rpc.tls import NodeTls, dialled_tls
from aerobee.rpc.tls_config import (
    NodeTlsConfig,
    PlainText,
    TlsConfig,
    client_tls_config,
)
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument, Unreachable
from aerobee.runtime.health import HealthConfig, Question
from aerobee.runtime.log_config import LogConfig
from aerobee.runtime.metrics.config import MetricsConfig
from tests.support.certificates import Certificate, issue, out_of_time
from tests.support.ports import free_port

EXPIRY = re.compile(
    r'aerobee_tls_certificate_expiry_timestamp_seconds\{.*certificate="([^"]+)".*\} (\S+)'
)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def node(authority: trustme.CA, tmp_path: Path) -> Certificate:
    return issue(authority, tmp_path / "node", "127.0.0.1")


def settings_of(files: Certificate) -> NodeTlsConfig:
    return NodeTlsConfig(certificate=str(files.certificate), key=str(files.key), ca=str(files.ca))


@asynccontextmanager
async def serving(
    config: NodeTlsConfig, observer: LimitObserver | None = None
) -> AsyncIterator[str]:
    """The address of a node with these settings."""
    async with NodeTls(config) as tls:
        server = RpcServer(say_error, [], tls=tls.accepted, observer=observer)
        try:
            yield f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        finally:
            await server.stop(0)


async def asked(address: str, tls: TlsConfig | bool) -> bool:
    """Whether it serves. Raises what a client of the library is told."""
    return (await check_health(address, timeout_ms=30_000, tls=dialled_tls(tls))).is_serving


async def why_not(address: str, tls: TlsConfig | bool) -> str:
    with pytest.raises(Unreachable) as refused:
        await asked(address, tls)
    return str(refused.value)


async def test_a_client_is_told_why_a_certificate_is_not_trusted(
    authority: trustme.CA, node: Certificate, tmp_path: Path
) -> None:
    trusting = TlsConfig(ca=node.ca)
    async with serving(settings_of(node)) as address:
        assert await asked(address, trusting)
        stranger = issue(trustme.CA(), tmp_path / "stranger", "127.0.0.1")
        said = await why_not(address, TlsConfig(ca=stranger.ca))
        assert "certificate is not valid: unable to get local issuer certificate" in said
        assert "certificate is not valid" in await why_not(address, True), (
            "the system's do not know"
        )
    other = issue(authority, tmp_path / "other", "other.example")
    async with serving(settings_of(other)) as address:
        assert "not valid: IP address mismatch" in await why_not(address, trusting)
    for why, (begin, end) in out_of_time().items():
        late = issue(authority, tmp_path / "late", "127.0.0.1", begin=begin, end=end)
        async with serving(settings_of(late)) as address:
            assert why in await why_not(address, trusting)


async def test_a_node_asks_clients_for_certificates_as_it_is_told(
    authority: trustme.CA, node: Certificate, tmp_path: Path
) -> None:
    visitor = issue(authority, tmp_path / "visitor", "visitor.example")
    stranger = issue(trustme.CA(), tmp_path / "stranger", "stranger.example")
    without = TlsConfig(ca=node.ca)
    known = replace(without, certificate=visitor.certificate, key=visitor.key)
    unknown = replace(without, certificate=stranger.certificate, key=stranger.key)
    admitted = {
        ClientAuth.NONE: (without, known, unknown),
        ClientAuth.OPTIONAL: (without, known),
        ClientAuth.REQUIRED: (known,),
    }
    for client_auth, clients in admitted.items():
        async with serving(replace(settings_of(node), client_auth=client_auth)) as address:
            for client in (without, known, unknown):
                if client in clients:
                    assert await asked(address, client)
                else:
                    await why_not(address, client)


async def test_a_node_logs_why_it_does_not_admit_a_client(
    authority: trustme.CA, node: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(settings_of(node), client_auth=ClientAuth.REQUIRED)

    def client_of(name: str, by: trustme.CA, *times: datetime) -> TlsConfig:
        begin, end = times or (None, None)
        own = issue(by, tmp_path / name, "visitor.example", begin=begin, end=end)
        return TlsConfig(ca=node.ca, certificate=own.certificate, key=own.key)

    not_valid = "its certificate is not valid: "
    async with serving(config, PeerLimits()) as address:
        clients: tuple[tuple[TlsConfig | bool, str], ...] = (
            *(
                (client_of(why, authority, *times), not_valid + why)
                for why, times in out_of_time().items()
            ),
            (client_of("stranger", trustme.CA()), not_valid + "unable to get local issuer"),
            (TlsConfig(ca=node.ca), "peer did not return a certificate"),
            (False, "it does not speak TLS"),
        )
        for client, why in clients:
            await why_not(address, client)
            await until_said(caplog, why)


async def test_one_port_serves_plain_text_too_where_that_is_allowed(node: Certificate) -> None:
    trusting = TlsConfig(ca=node.ca)
    async with serving(settings_of(node)) as address:
        assert "the server closed the connection" in await why_not(address, False)
    async with serving(replace(settings_of(node), plain_text=PlainText.ACCEPTED)) as address:
        assert await asked(address, False)
        assert await asked(address, trusting)
    async with serving(NodeTlsConfig()) as address:
        assert await asked(address, False)
        assert "it does not speak TLS" in await why_not(address, trusting)


async def test_a_cluster_may_change_to_tls_node_by_node(node: Certificate) -> None:
    """Before and after each step, any node calls any other."""
    encrypted = settings_of(node)
    steps = (
        NodeTlsConfig(),
        replace(encrypted, plain_text=PlainText.SPOKEN),
        replace(encrypted, plain_text=PlainText.ACCEPTED),
        encrypted,
    )
    for before, after in itertools.pairwise(steps):
        for served, calling in itertools.product((before, after), repeat=2):
            async with serving(served) as address:
                answer = await check_health(
                    address, timeout_ms=30_000, tls=NodeTls(calling).dialled
                )
                assert answer.is_serving


def test_a_node_that_speaks_plain_text_dials_without_tls(node: Certificate) -> None:
    config = settings_of(node)
    assert NodeTls(config).dialled is not None
    assert NodeTls(replace(config, plain_text=PlainText.ACCEPTED)).dialled is not None
    assert NodeTls(replace(config, plain_text=PlainText.SPOKEN)).dialled is None


async def test_new_certificates_are_used_and_unusable_ones_are_not(
    authority: trustme.CA, node: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The node's end, its figure, and its next connections; connections that are open go on."""
    caplog.set_level(logging.INFO, "aerobee")
    async with NodeTls(settings_of(node), check_interval_s=0.02) as tls:
        before = tls.expires
        assert before is not None
        node.key.write_text("half a k")
        await until_said(caplog, f"tls.key: {node.key} holds no private key in PEM form")
        assert tls.expires == before
        end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
        renewed = issue(authority, tmp_path / "renewed", "127.0.0.1", end=end)
        renewed.key.replace(node.key)
        renewed.certificate.replace(node.certificate)
        await until_said(caplog, "TLS files were read again")
        assert tls.expires == end
        rows = dict((await tls.gather("c", "broker")).families[0].rows)
        assert rows[("node",)] == end.timestamp()
    said = caplog.text
    assert "PRIVATE KEY-----" not in said
    assert "half a k" not in said


async def until_said(caplog: pytest.LogCaptureFixture, what: str) -> None:
    async with asyncio.timeout(60):
        while what not in caplog.text:
            await asyncio.sleep(0.01)


async def test_metrics_are_served_by_https(node: Certificate) -> None:
    trusting = ssl.create_default_context(cafile=str(node.ca))
    trusting.set_alpn_protocols(["h2", "http/1.1"])  # as Prometheus offers them

    def fetched(address: str) -> str:
        with urllib.request.urlopen(f"https://{address}/metrics", context=trusting) as answer:
            return str(answer.read().decode())

    address = f"127.0.0.1:{free_port()}"
    async with (
        NodeTls(settings_of(node)) as tls,
        serve_metrics(address, tls.http) as metrics,
    ):
        metrics.show("tls", partial(tls.gather, "c", "broker"))
        found = dict(EXPIRY.findall(await asyncio.to_thread(fetched, address)))
        assert tls.expires is not None
        assert float(found["node"]) == tls.expires.timestamp()
        assert float(found["authority"]) >= tls.expires.timestamp()
        plain = f"http://{address}/metrics"
        with pytest.raises((ConnectionError, urllib.error.URLError)):
            await asyncio.to_thread(urllib.request.urlopen, plain)


async def test_health_and_metrics_are_plain_unless_they_are_told(node: Certificate) -> None:
    trusting = TlsConfig(ca=node.ca)
    for is_encrypted in (False, True):
        health = f"127.0.0.1:{free_port()}"
        metrics = f"127.0.0.1:{free_port()}"
        config = NameserverConfig(
            tls=settings_of(node),
            health=HealthConfig(listen=health, tls=is_encrypted),
            metrics=MetricsConfig(listen=metrics, tls=is_encrypted),
        )
        async with serve_node_ports(
            config, "nameserver", Well(), PeerLimits(), clock=SystemClock()
        ):
            assert await asked(health, trusting if is_encrypted else False)
            await why_not(health, False if is_encrypted else trusting)
            reader, writer = await asyncio.open_connection(*metrics.split(":"))
            writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            with contextlib.suppress(ConnectionError):
                answer = await asyncio.wait_for(reader.read(), 60)
            assert (b"aerobee_health" in answer) is not is_encrypted
            writer.close()


class Well:
    """A health that is good."""

    def why_not(self, question: Question) -> str:
        return ""


def test_a_file_that_cannot_be_used_is_named(
    authority: trustme.CA, node: Certificate, tmp_path: Path
) -> None:
    config = settings_of(node)
    other = issue(authority, tmp_path / "other", "127.0.0.1")
    locked = tmp_path / "locked.key"
    key = load_pem_private_key(node.key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    empty = tmp_path / "empty"
    empty.write_text("")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"certificate": "/absent.crt"}, "tls.certificate: cannot read /absent.crt: No such file"),
        ({"key": str(other.key)}, f"tls.key: {other.key} is not the key of {node.certificate}"),
        ({"key": str(locked)}, "has a password; give a key without one"),
        ({"ca": str(empty)}, f"tls.ca: {empty} holds no certificate in PEM form"),
        ({"certificate": str(node.key)}, f"{node.key} holds no certificate in PEM form"),
    )
    for changes, sentence in cases:
        with pytest.raises(InvalidArgument, match=re.escape(sentence)):
            NodeTls(replace(config, **changes))
    with pytest.raises(InvalidArgument, match=r"TLS ca: cannot read /absent\.crt"):
        dialled_tls(TlsConfig(ca="/absent.crt"))


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings, sentence in (
        ({"certificate": "c"}, "belong together"),
        ({"ca": "c"}, "needs tls.certificate"),
        (
            {"certificate": "c", "key": "k", "client_auth": ClientAuth.REQUIRED},
            "needs tls.ca",
        ),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            NodeTlsConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="belong together"):
        TlsConfig(key="k")


def test_clients_find_their_files_in_the_environment() -> None:
    files = {
        "AEROBEE_TLS_CA": "ca.crt",
        "AEROBEE_TLS_CERTIFICATE": "own.crt",
        "AEROBEE_TLS_KEY": "own.key",
    }
    named = TlsConfig(ca="ca.crt", certificate="own.crt", key="own.key")
    assert client_tls_config(None, {}) is None
    assert client_tls_config(True, {}) == TlsConfig()
    assert client_tls_config(None, files) == named == client_tls_config(True, files)
    assert client_tls_config(None, {"AEROBEE_TLS": "true"}) == TlsConfig()
    assert client_tls_config(None, {**files, "AEROBEE_TLS": "false"}) is None
    assert client_tls_config(False, files) is None
    assert client_tls_config(TlsConfig(ca="mine"), files) == TlsConfig(ca="mine")
    with pytest.raises(InvalidArgument, match="AEROBEE_TLS must be true or false"):
        client_tls_config(None, {"AEROBEE_TLS": "perhaps"})


def test_whoever_listens_to_others_in_plain_text_is_told_at_the_start() -> None:
    encrypted = NodeTlsConfig(certificate="c", key="k")
    for listen, tls, keys in (
        ("127.0.0.1:1", NodeTlsConfig(), None),
        ("0.0.0.0:1", NodeTlsConfig(), ("listen", "tls.certificate")),
        ("0.0.0.0:1", encrypted, None),
        (
            "0.0.0.0:1",
            replace(encrypted, plain_text=PlainText.ACCEPTED),
            ("listen", "tls.plain_text"),
        ),
    ):
        config = SimpleNamespace(listen=listen, tls=tls, log=LogConfig())
        assert [risk.keys for risk in common_risks(config)] == ([keys] if keys else [])
