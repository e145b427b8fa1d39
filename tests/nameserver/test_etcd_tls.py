"""An etcd that is spoken to by TLS, and that knows its nameservers by their certificates."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme

from aerobee.nameserver.config import EtcdConfig, EtcdTlsConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Put
from aerobee.runtime.errors import InvalidArgument, RegistryUnavailable
from tests.support.certificates import Certificate, issue, out_of_time
from tests.support.etcd import START_TIMEOUT_S, etcd_command
from tests.support.ports import free_ports


@dataclass(frozen=True)
class SecuredEtcd:
    """A running member that takes clients with a certificate of its authority only."""

    endpoint: str
    authority: trustme.CA
    client: Certificate
    server: Path
    """The folder of its own certificate, which it reads for each connection."""

    def config(self, **changes: str) -> EtcdConfig:
        """How a nameserver is told of it."""
        tls = EtcdTlsConfig(
            ca=str(self.client.ca),
            certificate=str(self.client.certificate),
            key=str(self.client.key),
        )
        return EtcdConfig(
            endpoints=(self.endpoint,),
            call_timeout_ms=2_000,
            read_attempts_max=1,
            tls=replace(tls, **changes),
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredEtcd]:
    """One etcd with client certificates."""
    folder = tmp_path_factory.mktemp("secured-etcd")
    authority = trustme.CA()
    server = issue(authority, folder / "server", "127.0.0.1")
    client_port, peer_port = free_ports(2)
    command = etcd_command(
        folder / "data",
        client_port,
        peer_port,
        f"--cert-file={server.certificate}",
        f"--key-file={server.key}",
        f"--trusted-ca-file={server.ca}",
        "--client-cert-auth=true",
        "--log-level=error",
        scheme="https",
    )
    with (folder / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    issued = issue(authority, folder / "client", "nameserver")
    found = SecuredEtcd(f"127.0.0.1:{client_port}", authority, issued, server.folder)
    try:
        asyncio.run(asyncio.wait_for(_until_it_answers(found), START_TIMEOUT_S))
        yield found
    finally:
        process.kill()
        process.wait(10)


async def _until_it_answers(etcd: SecuredEtcd) -> None:
    async with connected(etcd.config()) as client:
        while True:
            with contextlib.suppress(RegistryUnavailable):
                await client.revision()
                return
            await asyncio.sleep(0.05)


def connected(config: EtcdConfig) -> Etcd:
    return Etcd(config, chance=random.Random(1))


async def test_keys_leases_and_watches_go_through_tls(secured: SecuredEtcd) -> None:
    async with connected(secured.config()) as client:
        lease = await client.grant_lease(5_000)
        before = await client.revision()
        async with client.watch("/tls/", from_revision=before + 1) as batches:
            assert (await anext(batches)).events == ()
            await client.transaction({"/tls/a": 0}, [Put("/tls/a", b"1", lease.lease_id)])
            (event,) = (await anext(batches)).events
            assert (event.key, event.value, event.lease_id) == ("/tls/a", b"1", lease.lease_id)
        await client.revoke_lease(lease.lease_id)
        assert await client.get("/tls/a") is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ca": "", "certificate": "", "key": ""}, id="without-tls"),
        pytest.param({"certificate": "", "key": ""}, id="without-a-certificate"),
    ],
)
async def test_who_shows_no_certificate_is_not_let_in(
    secured: SecuredEtcd, changes: dict[str, str]
) -> None:
    async with connected(secured.config(**changes)) as client:
        with pytest.raises(RegistryUnavailable):
            await client.revision()


async def test_an_etcd_whose_certificate_another_authority_signed_is_not_trusted(
    secured: SecuredEtcd, tmp_path: Path
) -> None:
    other = issue(trustme.CA(), tmp_path / "other", "nameserver")
    async with connected(secured.config(ca=str(other.ca))) as client:
        with pytest.raises(RegistryUnavailable):
            await client.revision()


@pytest.mark.parametrize("flaw", ["name", *out_of_time()])
async def test_an_etcd_whose_certificate_is_not_valid_is_not_trusted(
    secured: SecuredEtcd, flaw: str
) -> None:
    name = "other.example" if flaw == "name" else "127.0.0.1"
    begin, end = out_of_time().get(flaw, (None, None))
    issue(secured.authority, secured.server, name, begin=begin, end=end)
    try:
        async with connected(secured.config()) as client:
            with pytest.raises(RegistryUnavailable):
                await client.revision()
    finally:
        issue(secured.authority, secured.server, "127.0.0.1")
    async with connected(secured.config()) as client:
        assert await client.revision() > 0


@pytest.mark.parametrize("flaw", out_of_time())
async def test_an_etcd_lets_no_nameserver_in_whose_certificate_is_out_of_time(
    secured: SecuredEtcd, tmp_path: Path, flaw: str
) -> None:
    begin, end = out_of_time()[flaw]
    own = issue(secured.authority, tmp_path / "own", "nameserver", begin=begin, end=end)
    config = secured.config(certificate=str(own.certificate), key=str(own.key))
    async with connected(config) as client:
        with pytest.raises(RegistryUnavailable):
            await client.revision()


async def test_a_certificate_that_was_replaced_is_used_without_a_restart(
    secured: SecuredEtcd, tmp_path: Path
) -> None:
    """As when the first one expired and its successor was written to the same place."""
    used = issue(trustme.CA(), tmp_path / "used", "nameserver")
    successor = issue(secured.authority, tmp_path / "successor", "nameserver")
    config = secured.config(certificate=str(used.certificate), key=str(used.key))
    async with connected(config) as client:
        with pytest.raises(RegistryUnavailable):
            await client.revision()
        successor.certificate.replace(used.certificate)
        successor.key.replace(used.key)
        assert await client.revision() > 0


async def test_a_certificate_that_cannot_be_read_is_named(
    secured: SecuredEtcd, tmp_path: Path
) -> None:
    absent = str(tmp_path / "absent.crt")
    async with connected(secured.config(certificate=absent)) as client:
        with pytest.raises(RegistryUnavailable, match=r"absent\.crt.*etcd\.tls\.certificate"):
            await client.revision()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ca": "ca.crt", "certificate": "tls.crt"}, "belong together"),
        ({"ca": "ca.crt", "key": "tls.key"}, "belong together"),
        ({"certificate": "tls.crt", "key": "tls.key"}, "needs etcd.tls.ca"),
    ],
)
def test_half_of_a_certificate_is_refused(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        EtcdTlsConfig(**settings)
