"""A real process, real signals, and the exit code that a script would see."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
from aerobee.runtime import errors
from aerobee.runtime.supervise import run_service

async def service(lifecycle):
    {body}

sys.exit(run_service("broker", service, stop_timeout_s={stop_timeout_s}))
"""
ENDING = {
    "returns": ("return", 0, ""),
    "refused": ("raise errors.InvalidArgument('the port is in use')", 3, "the port is in use"),
    "failed": (
        "lifecycle.ready(); raise errors.StoreFailed('the disk failed')",
        4,
        "the disk failed",
    ),
    "bug": ("raise KeyError('x')", 4, "KeyError"),
    "in a task": (
        "async def fail(): raise errors.StoreFailed('the disk failed')\n"
        "    lifecycle.ready()\n"
        "    async with asyncio.TaskGroup() as tasks: tasks.create_task(fail())",
        4,
        "aerobee broker: the disk failed\n",
    ),
}
WAIT = "lifecycle.ready(); print('ready', flush=True); await lifecycle.stop.wait()"


def start(body: str, stop_timeout_s: float = 30.0) -> subprocess.Popen[str]:
    program = PROGRAM.format(body=body, stop_timeout_s=stop_timeout_s)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=20)
    return process.returncode, stderr


def wait_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("name", ENDING)
def test_the_exit_code_says_how_it_ended(name: str) -> None:
    body, code, text = ENDING[name]
    returned, stderr = finish(start(body))
    assert returned == code, stderr
    assert text in stderr
    if name not in ("bug", "returns"):
        assert "Traceback" not in stderr, "an expected failure is one sentence"


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_graceful_stop(which: signal.Signals) -> None:
    process = start(WAIT + "; await asyncio.sleep(0.05); print('closed', flush=True)")
    wait_ready(process)
    process.send_signal(which)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout, stderr) == (0, "closed\n", "")


def test_a_second_signal_ends_it_at_once() -> None:
    process = start(WAIT + "; print('ready', flush=True); await asyncio.sleep(60)")
    wait_ready(process)
    process.send_signal(signal.SIGTERM)
    wait_ready(process)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, stderr = finish(process)
    assert code == 128 + signal.SIGINT
    assert "without a clean stop" in stderr
    assert time.monotonic() - begun < 5


def test_a_stop_that_takes_too_long_is_ended() -> None:
    process = start(WAIT + "; await asyncio.sleep(60)", stop_timeout_s=0.2)
    wait_ready(process)
    process.send_signal(signal.SIGTERM)
    code, stderr = finish(process)
    assert code == 4
    assert "not stopped after 0.2 s" in stderr


def test_a_failure_while_stopping_is_told(tmp_path: Path) -> None:
    process = start(WAIT + "; raise errors.StoreFailed('the last flush failed')")
    wait_ready(process)
    process.send_signal(signal.SIGTERM)
    code, stderr = finish(process)
    assert (code, stderr) == (4, "aerobee broker: the last flush failed\n")
