"""Apache's own clients by TLS, at the ports that refuse plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rocketmq_api.official.scene import Scene, received
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("cluster"), "--tls") as up:
        yield up


@pytest.mark.thorough
def test_it_sends_and_receives_by_tls(
    program: Program, encrypted: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for Python and Node check the certificate, and its name."""
    if program.language == "rust":
        pytest.skip("the client for Rust announces TLS and does not speak it")
    monkeypatch.setenv("OFFICIAL_TLS", "yes")
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", encrypted.document()["tls"]["ca"])
    scene = Scene(program, encrypted, tmp_path)
    scene.begin("secret", "NORMAL")
    bodies = {f"{number}" for number in range(5)}
    with scene.producer() as producer:
        for body in bodies:
            assert producer.ask("send", topic=scene.topic, body=body)["id"]
    with scene.simple() as consumer:
        messages = received(consumer, len(bodies))
        for message in messages:
            assert consumer.ask("ack", id=message["id"]) == {"id": message["id"]}
    assert {message["body"] for message in messages} == bodies
