"""Programs that begin as forks behave as those that `python -m` executes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.cli.local_cluster.child import spawn_tied
from tests.support.waiting import wait_until
from tests.support.warm_start import COLD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(os.environ.get(COLD)), reason="programs start cold"),
    pytest.mark.skipif(sys.platform != "linux", reason="programs start cold elsewhere"),
]
AEROBEE = (sys.executable, "-m", "aerobee.cli")
SERVING = (*AEROBEE, "nameserver", "--listen", "127.0.0.1:0", "--etcd-endpoints", "127.0.0.1:1")


def is_fork(pid: int) -> bool:
    return b"tests.support.warm_start" in Path(f"/proc/{pid}/cmdline").read_bytes()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_folder_environment_pipes_and_exit_code_are_those_of_the_call(tmp_path: Path) -> None:
    executed = {**os.environ, "PYTHONHASHSEED": "7"}
    (tmp_path / "broker.toml").write_text("no_such_key = 1\n")
    said = []
    for environment in (dict(os.environ), executed):
        done = subprocess.run(
            [*AEROBEE, "config", "check", "broker.toml"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            input="unread",
        )
        assert "no_such_key" in done.stdout + done.stderr
        said.append((done.returncode, done.stdout, done.stderr))
    warm, cold = said
    assert warm == cold
    named = {**os.environ, "AEROBEE_NAMESERVER": "127.0.0.1:2"}
    done = subprocess.run([*AEROBEE, "topic", "list"], env=named, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "127.0.0.1:2" in done.stderr


def test_a_program_is_a_child_with_a_session_of_its_own_and_ends_by_signals(
    tmp_path: Path,
) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(SERVING, stdout=log, stderr=log, start_new_session=True)
    assert is_fork(process.pid)
    wait_until(lambda: os.getsid(process.pid) == process.pid)
    assert parent_of(process.pid) == os.getpid()
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


async def test_asyncio_starts_them_tied_to_its_process(tmp_path: Path) -> None:
    process = await spawn_tied(SERVING, log=tmp_path / "log")
    assert is_fork(process.pid)
    process.terminate()
    await process.wait()


def test_the_installed_command_begins_as_a_fork_too(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["aerobee", *SERVING[3:]], stdout=log, stderr=log, env={**os.environ, "PATH": path}
        )
    assert is_fork(process.pid)
    process.kill()
    process.wait()


def test_a_file_of_python_begins_as_a_fork_with_its_arguments_and_without_warnings(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, warnings\nprint(sys.argv, __name__)\nwarnings.warn('late')\n")
    said = []
    for environment in (dict(os.environ), {**os.environ, "PYTHONHASHSEED": "7"}):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(program), "--count=3"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert "UserWarning: late" in done.stderr
        said.append((done.returncode, done.stdout))
    warm, cold = said
    assert warm == cold == (1, f"{[str(program), '--count=3']} __main__\n")
    program.write_text("import time; time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-W", "error", str(program)])
    assert is_fork(process.pid)
    process.kill()
    process.wait()


def test_what_asks_for_more_is_executed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path)
    assert not is_fork(process.pid)
    process.kill()
    process.wait()
