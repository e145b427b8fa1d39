"""All 145 cases of h2spec, plain and by TLS. Builds them by Go; skipped where Go, or what they need
from its module proxy, is missing."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from aerobee.rpc.core.frames import FRAME_BYTES_MIN
from aerobee.rpc.core.limits import ConnectionLimits
from tests.support.certificates import issue
from tests.support.grpc_core_server import serving

SOURCES = Path(__file__).parent / "h2spec"
CASES = 145
# All streams that one case opens too many of come in one turn: a busy machine answers none between.
LIMITS = ConnectionLimits(streams_max=100, frame_bytes_max=FRAME_BYTES_MIN)
DEFAULTS = ConnectionLimits()
# Go compiles its own library first, which takes a busy machine minutes, once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("h2spec needs Go: install golang-go, or see https://go.dev/dl")
    program = tmp_path_factory.mktemp("h2spec") / "h2spec-cases"
    # What Go downloads and compiles stays in this environment, for other runs.
    kept = Path(sys.prefix) / ".go"
    folders = {"GOPATH": str(kept), "GOCACHE": str(kept / "cache"), "GOFLAGS": "-modcacherw"}
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=SOURCES,
        env={**os.environ, **folders},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"h2spec cannot be built here: {built.stderr[-300:]}")
    return program


async def run(program: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return output.decode()


def all_passed(output: str) -> bool:
    return f"{CASES} tests, {CASES} passed, 0 skipped, 0 failed" in re.sub(r"\s+", " ", output)


async def test_every_case_passes(h2spec: Path) -> None:
    async with serving(limits=LIMITS) as running:
        output = await run(h2spec, str(running.port))
    assert all_passed(output), output[-5_000:]


async def test_with_long_frames_only_the_case_fails_that_takes_them_for_too_long(
    h2spec: Path,
) -> None:
    """It sends HEADERS of 20 KiB whatever the server's SETTINGS allow."""
    async with serving(limits=replace(LIMITS, frame_bytes_max=DEFAULTS.frame_bytes_max)) as running:
        output = await run(h2spec, str(running.port))
    failures = output.partition("Failures:")[2]
    assert f"{CASES} tests, {CASES - 1} passed, 0 skipped, 1 failed" in output, output[-5_000:]
    assert "large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE" in failures


async def test_every_case_passes_by_tls(h2spec: Path, tmp_path: Path) -> None:
    certificate = issue(trustme.CA(), tmp_path / "server", "localhost", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    context.set_alpn_protocols(["h2"])
    async with serving(tls=context, limits=LIMITS) as running:
        output = await run(h2spec, str(running.port), "tls")
    assert all_passed(output), output[-5_000:]
