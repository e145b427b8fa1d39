"""Clients of other languages against our server: each runs the same cases, plain and by TLS with
certificates on both sides. What their cases are stands in their sources beside this file."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from aerobee.rpc.core.limits import ConnectionLimits
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import Status
from tests.rpc.core.interop.programs import PROGRAMS
from tests.support.certificates import Certificate, issue
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.waiting import until

CASES = {
    "sizes",
    "large_answers",
    "many_calls",
    "many_streams",
    "stream_of_answers",
    "stream_of_requests",
    "both_stream",
    "slow_reader",
    "gzip",
    "errors",
    "metadata",
    "unimplemented",
    "deadline",
    "cancel",
    "cancelled_by_server",
}
LIMITS = ConnectionLimits(message_bytes_max=32 << 20, streams_max=2_048)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Encodings:
    """Which compressions the requests for `Squeezed` named."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def began(self, call: ServerCall) -> None:
        if call.path == SERVICE + "Squeezed":
            self.seen.add(call.head.encoding)

    def ended(self, call: ServerCall, status: Status, elapsed_s: float) -> None: ...


def server_tls(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    context.load_verify_locations(certificate.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.parametrize("by_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    "language",
    # `make test` takes the quickest, `make clients-test` all.
    [pytest.param(one, marks=() if one == "go" else pytest.mark.long) for one in PROGRAMS],
)
async def test_every_case_passes(language: str, by_tls: bool, tmp_path: Path) -> None:
    program = PROGRAMS[language]
    if program.missing:
        pytest.skip(program.missing)
    files: list[str] = []
    tls = None
    if by_tls:
        authority = trustme.CA()
        tls = server_tls(issue(authority, tmp_path / "server", "localhost"))
        visitor = issue(authority, tmp_path / "client", "visitor.example")
        files = [str(visitor.ca), str(visitor.certificate), str(visitor.key)]
    encodings = Encodings()
    async with serving(limits=LIMITS, tls=tls, interceptor=encodings) as running:
        process = await asyncio.create_subprocess_exec(
            *program.command_line(running.target, *files),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, output
        assert {line[3:] for line in output.splitlines() if line.startswith("ok ")} == CASES
        assert b"gzip" in encodings.seen
        assert running.met == []
        await until(lambda: set(running.cancelled) == {"Sleep", "Forever"})
