"""Ctrl-C and SIGTERM end a consumer as its user expects: in order, soon, and without a page of our
frames."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.real_brokers import RealCluster
from tests.support.waiting import PATIENCE_S

PROGRAM = Path(__file__).with_name("interrupted_consumer.py")
ENTRY_SCRIPT = ("sh", "-c", "trap 'kill -TERM $P' TERM; \"$@\" & P=$!; wait $P; wait $P", "sh")
"""As that of a container. A shell lets what it starts with `&` ignore SIGINT."""


async def interrupted(
    how: str,
    nameserver: str,
    folder: Path,
    last: str,
    number: signal.Signals | None = signal.SIGINT,
    *,
    started_by: tuple[str, ...] = (),
) -> tuple[int, str, str]:
    """Exit code, output and errors of a program that got a signal, if any, once it had said
    `last`."""
    process = await asyncio.create_subprocess_exec(
        *started_by,
        sys.executable,
        str(PROGRAM),
        how,
        nameserver,
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A suite that runs in the background ignores Ctrl-C, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        said = ""
        while not said.endswith(f"{last}\n"):
            line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
            assert line, said
            said += line.decode()
        if number is not None:
            await asyncio.sleep(0.3)  # It is in the call that waits.
            process.send_signal(number)
        rest, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said + rest.decode(), errors.decode()


async def test_run_returns_and_the_unfinished_message_comes_again(
    cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"slow"])
    code, said, errors = await interrupted("push", cluster.address, tmp_path, "slow")
    assert (code, said, errors) == (0, "starting\nquick\nslow\nstopped\n", "")
    assert (await cluster.committed("g"))["single", 0] == 1
    code, said, errors = await interrupted("push", cluster.address, tmp_path, "slow")
    assert (code, said, errors) == (0, "starting\nslow\nstopped\n", "")


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("push", signal.SIGTERM),
        ("coroutine", signal.SIGINT),
        ("coroutine", signal.SIGTERM),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_run_ends_in_order_with_each_signal(
    how: str, number: signal.Signals, cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"slow"])
    ended = await interrupted(how, cluster.address, tmp_path, "slow", number)
    assert ended == (0, "starting\nquick\nslow\nstopped\n", "")
    assert (await cluster.committed("g"))["single", 0] == 1


@pytest.mark.parametrize("how", ["push", "coroutine"])
async def test_run_ends_in_order_where_a_script_started_it_in_the_background(
    how: str, cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"slow"])
    ended = await interrupted(
        how, cluster.address, tmp_path, "slow", signal.SIGTERM, started_by=ENTRY_SCRIPT
    )
    assert ended == (0, "starting\nquick\nslow\nstopped\n", "")
    assert (await cluster.committed("g"))["single", 0] == 1


@pytest.mark.parametrize("how", ["push", "coroutine"])
async def test_a_listener_that_exits_ends_its_program_in_order(
    how: str, cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"exit", b"never"])
    ended = await interrupted(how, cluster.address, tmp_path, "exit", None)
    assert ended == (3, "starting\nquick\nexit\n", "")
    assert (await cluster.committed("g"))["single", 0] == 1


@pytest.mark.parametrize("how", ["push", "coroutine"])
async def test_a_start_that_waits_for_a_cluster_is_called_off_by_sigterm(
    how: str, tmp_path: Path
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    ended = await interrupted(how, nowhere, tmp_path, "starting", signal.SIGTERM)
    assert ended == (0, "starting\nstopped\n", "")


async def test_a_programs_own_handler_of_sigterm_stays(
    cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick"])
    ended = await interrupted("own handler", cluster.address, tmp_path, "quick", signal.SIGTERM)
    assert ended == (1, "starting\nquick\n", "by its own\n")


@pytest.mark.parametrize("last", ["quick", "slow"], ids=["while it waits", "in the loop's body"])
async def test_a_loop_ends_with_an_interrupt_that_shows_where_the_program_was(
    last: str, cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"slow"][: 1 + (last == "slow")])
    code, _, errors = await interrupted("pull", cluster.address, tmp_path, last)
    lines = errors.splitlines()
    assert code == -signal.SIGINT
    assert lines[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") == 1
    assert not any("asyncio" in line or "concurrent" in line for line in lines), errors
    frames = [line for line in lines if line.startswith("  File")]
    assert len([line for line in frames if str(PROGRAM) not in line]) <= 2, errors
    # `quick` is done, because the next one was asked for; `slow` comes again.
    assert (await cluster.committed("g"))["single", 0] == 1


@pytest.mark.parametrize("last", ["quick", "slow"], ids=["while it waits", "in the loop's body"])
async def test_an_asynchronous_loop_ends_so_with_few_of_our_frames(
    last: str, cluster: RealCluster, tmp_path: Path
) -> None:
    await cluster.send("single", 0, [b"quick", b"slow"][: 1 + (last == "slow")])
    code, _, errors = await interrupted("pull in a loop", cluster.address, tmp_path, last)
    assert code == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    frames = [line for line in errors.splitlines() if line.startswith("  File")]
    assert len([line for line in frames if "/aerobee/" in line]) <= 3, errors
    assert (await cluster.committed("g"))["single", 0] == 1


async def test_a_start_that_waits_for_a_cluster_is_called_off(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    code, said, errors = await interrupted("push", nowhere, tmp_path, "starting")
    assert (code, said, errors) == (0, "starting\nstopped\n", "")
