"""`aerobee up --tls`: a whole cluster in which nothing is said in plain text."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import shutil
import signal
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from aerobee.cli.local_cluster.certificates import make_certificates
from aerobee.cli.local_cluster.plan import EtcdTls, LocalTls
from aerobee.client_core import AerobeeError, Message, TlsConfig
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.rpc.health_check import check_health
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime.clock import SystemClock
from tests.support.local_up import Up, numbers, received, running, sent
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def of_clients(document: dict[str, Any]) -> TlsConfig:
    return TlsConfig(**document["tls"])


async def admits(up: Up, tls: TlsConfig) -> list[bool]:
    """Whether a new connection with these files is made, for the nameserver and each broker."""
    document = up.document()
    ports = [document["nameserver"], *(broker["address"] for broker in document["brokers"])]
    return [await _admits(port, tls) for port in ports]


async def _admits(address: str, tls: TlsConfig) -> bool:
    try:
        return (await check_health(address, tls=dialled_tls(tls))).is_serving
    except AerobeeError:
        return False


@pytest.mark.thorough
async def test_a_cluster_lives_through_a_death_and_new_certificates_without_plain_text(
    tmp_path: Path,
) -> None:
    """Brokers ask even their replicas for certificates; etcd asks nameservers."""
    demanding = ("--broker-set", "tls.client_auth=required")
    with running(tmp_path, "--tls", "--replicas", "2", *demanding) as up:
        document = up.document()
        assert "--tls-ca" in up.said()
        refused = up.run("topic", "list", "--no-tls", expect=3)
        assert "if it speaks TLS, give --tls-ca or --tls" in refused.stderr
        sent(up, "kept", numbers(500))
        os.kill(document["pids"][master_of(up)], signal.SIGKILL)
        sent(up, "kept", numbers(500, start=500), "--timeout-ms", "60000")
        await certificates_change_under_load(up, of_clients(document))
        assert sorted(received(up, "kept", "g", 1_000)) == sorted(numbers(1_000))


def master_of(up: Up) -> str:
    """The name of its process."""
    (master,) = (
        one for one in up.json("cluster", "show")["brokers"] if one["role"].upper() == "MASTER"
    )
    return "broker-a" if master["id"] == 0 else f"broker-a-{master['id']}"


async def certificates_change_under_load(up: Up, tls: TlsConfig) -> None:
    """Even the authority, as docs/tls.md says it: nothing fails, and no stream of the producer's
    ends before the former authority is taken out."""
    new, folder = LocalTls(up.data / "new"), Path(tls.ca).parent
    make_certificates(new, SystemClock())
    old = up.data / "old"
    shutil.copytree(folder, old)
    former = TlsConfig(ca=tls.ca, certificate=old / "client.crt", key=old / "client.key")
    latter = TlsConfig(ca=tls.ca, certificate=new.client_certificate, key=new.client_key)
    config = ProducerConfig(send_timeout_ms=60_000)
    async with Producer(up.document()["nameserver"], tls=tls, config=config) as producer:
        await producer.send(Message("others", b"before"))
        is_over = asyncio.Event()

        async def keep_sending() -> None:
            """So that a stream that ends does so under a batch."""
            while not is_over.is_set():
                await producer.send(Message("others", b"under way"))

        async def admitted(*, both: bool) -> bool:
            """By brokers: nameservers ask for no certificate here."""
            (_, *old_ones), (_, *new_ones) = await admits(up, former), await admits(up, latter)
            return all(new_ones) and old_ones == [both] * len(old_ones)

        async def stored_more() -> None:
            stored = producer.statistics().messages_stored
            await until(lambda: producer.statistics().messages_stored > stored + 100)

        async with asyncio.TaskGroup() as senders:
            for _ in range(8):
                senders.create_task(keep_sending())
            both = (old / "ca.crt").read_bytes() + new.ca.read_bytes()
            replace_file(Path(tls.ca), both)
            await until(lambda: admitted(both=True), "nodes to trust both authorities")
            for path in (new.certificate, new.key, new.client_certificate, new.client_key):
                replace_file(folder / path.name, path.read_bytes())
            by_new = replace(former, ca=new.ca)
            await until(lambda: all_admit(up, by_new), "nodes to show certificates of the new one")
            await stored_more()
            assert producer.statistics().batches_retried == 0, "a stream ended"
            replace_file(Path(tls.ca), new.ca.read_bytes())
            await until(lambda: admitted(both=False), "nodes to trust the new authority alone")
            await stored_more()
            is_over.set()
        assert producer.statistics().messages_failed == 0


async def all_admit(up: Up, tls: TlsConfig) -> bool:
    return all(await admits(up, tls))


def replace_file(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(content)
    beside.chmod(0o600)
    beside.replace(path)


def test_only_the_nameservers_certificate_opens_etcd_which_has_one_port(tmp_path: Path) -> None:
    """A user's certificate is of the nodes' authority: with it a user could write to etcd, and
    give itself every right."""
    with running(tmp_path, "--tls", "--access") as up:
        etcd, tls = EtcdTls(up.data / "tls"), LocalTls(up.data / "tls")
        address = up.document()["etcd"]
        assert "etcdserver" in version(address, etcd.ca, etcd.client_certificate, etcd.client_key)
        for certificate, key in (
            (tls.client_certificate, tls.client_key),
            (tls.certificate, tls.key),
        ):
            with pytest.raises(ssl.SSLError):
                version(address, etcd.ca, certificate, key)
        with pytest.raises(ssl.SSLError):
            version(address, etcd.ca, None, None)
        assert listening_ports(up.document()["pids"]["etcd"]) == {int(address.rpartition(":")[2])}
        socket_file = up.data / "etcd-peer" / "peer:0"
        assert socket_file.is_socket()
        assert not socket_file.parent.stat().st_mode & 0o077


def version(address: str, ca: Path, certificate: Path | None, key: Path | None) -> str:
    """What etcd says to a certificate. Raises ssl.SSLError if it does not accept it."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as stream,
    ):
        stream.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return stream.recv(10_000).decode()


def listening_ports(pid: int) -> set[int]:
    """Of TCP, of one process."""
    inodes = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    return {int(row[1].rpartition(":")[2], 16) for row in listening}


def test_the_nodes_certificate_names_the_hosts_that_clients_elsewhere_know(tmp_path: Path) -> None:
    tls = LocalTls(tmp_path / "tls")
    make_certificates(tls, SystemClock(), hosts=["mq.example.net", "192.0.2.7"])
    certificate = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "mq.example.net" in names.get_values_for_type(x509.DNSName)
    assert ipaddress.ip_address("192.0.2.7") in names.get_values_for_type(x509.IPAddress)
