"""Logs of real services: joined by ids, silent about what messages hold, changed by SIGHUP."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.client_core import BrokerAdmin
from aerobee.client_core.cluster import ClusterConnection
from aerobee.runtime.call_context import request_scope
from aerobee.runtime.errors import AerobeeError
from aerobee.v1 import broker_pb2, broker_pb2_grpc
from tests.support.grpcio_client import build_channel
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

AEROBEE = (sys.executable, "-m", "aerobee.cli")
PATIENCE_S = 60.0
SECRET = "Pq7-hidden-in-every-part-of-a-message"


def lines_of(*logs: Path) -> list[dict[str, Any]]:
    """The lines of services; what etcd and libraries write otherwise is left out."""
    found = []
    for log in logs:
        for line in log.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):
                document = json.loads(line)
                if "event" in document:
                    found.append(document)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """`aerobee up` with services that log all they can; its ready file, and its logs."""
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [
            *(*AEROBEE, "up", "--data", str(tmp_path / "data"), "--ports", "auto"),
            *("--ready-file", str(ready)),
        ],
        env={**os.environ, "AEROBEE_LOG_LEVEL": "debug", "AEROBEE_LOG_FORMAT": "json"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the ready file")
        yield {**json.loads(ready.read_text()), "logs": tmp_path / "data" / "logs"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def use_it(nameserver: str) -> None:
    """Send, consume, and look up, as a user does."""
    message = {
        "body": SECRET,
        "tag": "paid",
        "keys": [f"{SECRET}-key"],
        "properties": {"note": SECRET},
        "shardingKey": SECRET,
    }
    text = "".join(json.dumps(message) + "\n" for _ in range(3))
    for arguments, given in (
        ("produce orders --format json", text),
        ("consume orders --group billing --count 3 --idle-timeout 30", ""),
        (f"message query orders --key {SECRET}-key", ""),
    ):
        done = subprocess.run(
            [*AEROBEE, *arguments.split()],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "AEROBEE_NAMESERVER": nameserver},
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        assert SECRET in done.stdout or "sent 3" in done.stdout


async def misuse_it(broker: str) -> None:
    """Calls that the broker refuses, with the secret wherever a call has room for it."""
    body = SECRET.encode()
    async with build_channel(broker) as channel:
        send = broker_pb2_grpc.SendServiceStub(channel)
        for request in (
            broker_pb2.SendRequest(topic="unknown", body=body, properties={"a": SECRET}),
            broker_pb2.SendRequest(topic="orders", queue_id=99, body=body, keys=[SECRET]),
            broker_pb2.SendRequest(topic="orders", body=body, properties={SECRET: "\x01"}),
            broker_pb2.SendRequest(topic="orders", body=body, keys=[f"{SECRET} {SECRET}"]),
            broker_pb2.SendRequest(topic="orders", body=body * 200_000),
            broker_pb2.SendRequest(topic="orders", body=b""),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await send.Send(request, timeout=10)
        with contextlib.suppress(grpc.aio.AioRpcError):
            raw: Any = channel.unary_unary("/aerobee.v1.SendService/Send")
            await raw(body, timeout=10)


async def test_no_line_of_any_service_holds_what_a_message_holds(
    cluster: dict[str, Any],
) -> None:
    use_it(cluster["nameserver"])
    await misuse_it(cluster["brokers"][0]["address"])
    logs = list(cluster["logs"].glob("*.log"))
    assert len(lines_of(*logs)) > 20, "everything is logged"
    for log in logs:
        text = log.read_text("utf-8", "replace")
        assert SECRET not in text, log.name
        assert base64.b64encode(SECRET.encode()).decode()[:-2] not in text, log.name
        assert SECRET.encode().hex() not in text, log.name


async def test_one_id_joins_what_all_services_log_of_a_request(cluster: dict[str, Any]) -> None:
    async with ClusterConnection(cluster["nameserver"]) as connection:
        with request_scope("ticket-4711"):
            brokers = BrokerAdmin(connection)
            with contextlib.suppress(AerobeeError):
                await brokers.hand_over(cluster["brokers"][0]["name"], timeout=1.0)
    by_service = {
        log.stem: [line for line in lines_of(log) if line.get("request_id") == "ticket-4711"]
        for log in cluster["logs"].glob("*.log")
    }
    joined = {name for name, lines in by_service.items() if lines}
    assert any("nameserver" in name for name in joined), by_service.keys()
    assert any("broker" in name for name in joined), by_service.keys()


CONFIG = """\
listen = "127.0.0.1:0"
store_root = "{root}"
nameservers = []
snapshot_interval_ms = {interval_ms}
[log]
format = "json"
level = "{level}"
"""


def test_sighup_changes_the_level_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    file, log = tmp_path / "broker.toml", tmp_path / "broker.log"

    def write(level: str, interval_ms: int = 5_000) -> None:
        root = tmp_path / "store"
        file.write_text(CONFIG.format(root=root, level=level, interval_ms=interval_ms))

    def told(event: str, count: int = 1) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            lines = [line for line in lines_of(log) if line["event"] == event]
            return lines if len(lines) >= count else []

        lines: list[dict[str, Any]] = wait_until(found, event)
        return lines[-1]

    write("info")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*AEROBEE, "broker", "--config", str(file), "--store-segment-bytes", "1048576"],
            stdin=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        told("broker serves")
        write("warning", interval_ms=6_000)
        process.send_signal(signal.SIGHUP)
        read = told("configuration read again")
        assert read["changed"] == ["log.level"]
        assert read["restart_needed_for"] == ["snapshot_interval_ms"]
        file.write_text("level = [")
        process.send_signal(signal.SIGHUP)
        assert "not valid TOML" in told("configuration refused; the present one stays")["reason"]
        write("debug")
        process.send_signal(signal.SIGHUP)
        read = told("configuration read again", 2)
        assert (read["changed"], read["restart_needed_for"]) == (["log.level"], [])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        told("broker stopped")
    finally:
        process.kill()
        process.wait()
