"""Thousands of open calls of any streaming or waiting method, which all end at once, cost a node in
proportion to their number: with rights and without, at brokers and nameservers."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from aerobee.access.credentials import (
    CLUSTER_SECRET_VARIABLE,
    FILE_VARIABLE,
    Anonymous,
    Credentials,
    credentials_of_environment,
)
from aerobee.rpc.core import frames
from tests.access.test_doors import AT_BROKERS, AT_NAMESERVERS, CLIENT, TEXTS
from tests.support.local_up import Up, running
from tests.support.plain_requests import plain_request
from tests.support.raw_http2 import data, headers, message, request_block
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]

STREAMS = 1_000
"""On one connection."""
FEW, MANY = 2, 20
"""Connections."""
DEARER_MAX = 4
CALL_S = 0.000_1
"""Cheaper calls are not worth comparing."""
QUIET_S = 0.6
WAITING_UNARY = frozenset({"Pull", "ReceiveMessage"})
EVERYBODYS = (health_pb2, reflection_pb2)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--access") as up:
        up.environment[CLUSTER_SECRET_VARIABLE] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "bank")
        yield up


@pytest.fixture(scope="module")
def rights(up: Up, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Credentials]:
    file = tmp_path_factory.mktemp("credentials") / "root"
    up.run("user", "create", "root", "--credentials-file", str(file), "--super")
    user = credentials_of_environment({FILE_VARIABLE: str(file)})
    return {"stranger": Anonymous(), "super user": user}


def streaming(files: tuple[Any, ...]) -> Iterator[tuple[str, MethodDescriptor]]:
    for file in files:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                streams = method.client_streaming or method.server_streaming
                if streams or method.name in WAITING_UNARY:
                    yield f"/{service.full_name}/{method.name}", method


def cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICKS_PER_S


def calls(path: str, method: MethodDescriptor, who: Credentials, client: int) -> bytes:
    request = plain_request(method.input_type, TEXTS, otherwise="bank").SerializeToString()
    frames_: list[bytes] = []
    for number in range(STREAMS):
        stream_id = 1 + 2 * number
        metadata = [(f"c{client}-{number}" if key == "x-mq-client-id" else value, key)
                    for key, value in (*CLIENT, *who.metadata(path))]  # fmt: skip
        fields = [(key.encode(), value.encode()) for value, key in metadata]
        frames_.append(headers(stream_id, request_block(path, *fields)))
        frames_.append(data(stream_id, message(request), end=not method.client_streaming))
    return b"".join(frames_)


def opened(address: str, content: bytes) -> socket.socket:
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)), timeout=60)
    settings = frames.frame(frames.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 20))
    peer.sendall(frames.PREFACE + settings + frames.window_update(0, 1 << 30) + content)
    return peer


def ended_s(address: str, pid: int, contents: list[bytes]) -> float:
    """CPU time of the node per call, for calls that are all open and end at once."""
    began_s = cpu_s(pid)
    peers = [opened(address, content) for content in contents]
    quiet(pid)
    for peer in peers:
        peer.close()
    quiet(pid)
    return (cpu_s(pid) - began_s) / (len(contents) * STREAMS)


def quiet(pid: int) -> None:
    """Until the node has nothing more to do for these calls."""

    def is_quiet() -> bool:
        before_s = cpu_s(pid)
        time.sleep(QUIET_S)  # over which CPU time is measured
        return cpu_s(pid) - before_s < QUIET_S / 10

    wait_until(is_quiet)


@pytest.mark.parametrize("who", ["stranger", "super user"])
@pytest.mark.parametrize("node", ["broker", "nameserver"])
def test_many_calls_that_end_at_once_cost_in_proportion_to_their_number(
    up: Up, rights: dict[str, Credentials], node: str, who: str
) -> None:
    document = up.document()
    if node == "broker":
        address, pid = document["brokers"][0]["address"], document["brokers"][0]["pid"]
        files: tuple[Any, ...] = (*EVERYBODYS, *AT_BROKERS)
    else:
        address, pid = document["nameserver"], document["pids"]["nameserver"]
        files = (*EVERYBODYS, *AT_NAMESERVERS)
    methods = dict(streaming(files))
    assert len(methods) >= 6
    dear = {}
    for path, method in methods.items():
        contents = [calls(path, method, rights[who], number) for number in range(MANY)]
        few_s = ended_s(address, pid, contents[:FEW])
        many_s = ended_s(address, pid, contents)
        if many_s > DEARER_MAX * max(few_s, CALL_S):
            dear[path] = (few_s, many_s)
    assert dear == {}
