"""When etcd's certificates expire is seen before it happens, and after."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from aerobee.nameserver.config import EtcdConfig, EtcdTlsConfig
from aerobee.nameserver.etcd_certificates import EtcdCertificates
from aerobee.rpc.tls import NodeTls, expiry
from aerobee.rpc.tls_config import NodeTlsConfig
from tests.support.certificates import issue
from tests.support.waiting import until

EXPIRED = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[tuple[str, EtcdTlsConfig]]:
    """What listens like etcd's, with a certificate that expired yesterday, and asks for one."""
    authority = trustme.CA()
    server = issue(authority, tmp_path / "server", "127.0.0.1", end=EXPIRED)
    client = issue(authority, tmp_path / "client", "nameserver")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(server.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    listening = await asyncio.start_server(
        lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        files = {"ca": server.ca, "certificate": client.certificate, "key": client.key}
        yield f"127.0.0.1:{port}", EtcdTlsConfig(**{key: str(path) for key, path in files.items()})


async def test_the_expiry_of_each_certificate_between_nameserver_and_etcd_is_shown(
    member: tuple[str, EtcdTlsConfig],
) -> None:
    """Of a member that does not answer, nothing is said."""
    address, files = member
    config = EtcdConfig(endpoints=("127.0.0.1:1", address), tls=files)
    async with NodeTls(NodeTlsConfig(), check_interval_s=0.02) as tls:
        tls.watch("etcd client", files.certificate)
        tls.watch("etcd authority", files.ca)
        looking = asyncio.create_task(EtcdCertificates(config, tls.tell, interval_s=0.02).run())

        async def shown() -> dict[str, float]:
            family = (await tls.gather("c", "nameserver")).families[0]
            return {labels[0]: value for labels, value in family.rows if isinstance(value, float)}

        async def has_all() -> bool:
            return len(await shown()) == 3

        await until(has_all)
        ends = {
            kind: expiry(Path(path))
            for kind, path in (("etcd client", files.certificate), ("etcd authority", files.ca))
        }
        assert await shown() == {
            f"etcd {address}": EXPIRED.timestamp(),
            **{kind: end.timestamp() for kind, end in ends.items() if end is not None},
        }
        looking.cancel()
