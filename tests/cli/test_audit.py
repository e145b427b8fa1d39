"""`aerobee audit` where Spark cannot run: one sentence says what to install."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from aerobee.cli.__main__ import main
from aerobee.cli.audit_display import WatchScreen
from aerobee.offset_audit.run.arguments import ARGUMENTS
from aerobee.runtime.clock import ManualClock

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyspark", "pyarrow", "py4j"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
    )


def test_every_argument_is_in_the_help() -> None:
    result = CliRunner().invoke(main, ["audit", "--help"])
    assert result.exit_code == 0
    for one in ARGUMENTS:
        assert f"--{one.name}" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["--limit", "colour=3"],
        ["--watch", "--deep"],
        ["--watch", "--deep", "--store", ".", "--engine", "spark"],
        ["--format", "pdf"],
    ],
)
def test_wrong_usage_has_a_code_that_no_finding_has(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["audit", *arguments])
    assert result.exit_code == 64, result.output


def test_without_java_it_says_which_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = CliRunner().invoke(main, ["audit", "--engine", "spark"])
    assert result.exit_code == 69
    assert "openjdk-17-jre-headless" in result.output
    assert "JAVA_HOME is /nowhere" in result.output
    assert "Traceback" not in result.output


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["audit", "--engine", "spark"])
    assert result.exit_code == 69
    assert "is Java 8" in result.output


def test_without_pyspark_it_says_how_to_get_it_and_all_else_works() -> None:
    done = run(
        BLOCKER + "from aerobee.cli.__main__ import main\n"
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "hidden = {'pyspark', 'pyarrow'}\n"
        "importlib.util.find_spec = lambda name, *a: None if name in hidden else found(name, *a)\n"
        "sys.argv = ['aerobee', 'audit']\n"
        "main()\n"
    )
    assert done.returncode == 69, done.stderr
    assert "pip install '.[audit]' in a checkout" in done.stderr
    assert "Traceback" not in done.stderr

    every = run(
        BLOCKER + "from click.testing import CliRunner\n"
        "from aerobee.cli.__main__ import COMMANDS, main\n"
        "import aerobee.broker, aerobee.client_core, aerobee.nameserver\n"
        "for command in COMMANDS:\n"
        "    if command.name != 'bench':\n"
        "        result = CliRunner().invoke(main, [command.name, '--help'])\n"
        "        assert result.exit_code == 0, (command.name, result.output)\n"
    )
    assert every.returncode == 0, every.stderr


def test_the_screen_of_watch_says_what_the_run_does_meanwhile() -> None:
    clock = ManualClock()
    console = Console(file=io.StringIO(), width=100, height=24, force_terminal=True)
    screen = WatchScreen(console, 30, clock)

    def foot() -> str:
        with console.capture() as captured:
            console.print(screen.picture())
        return captured.get()

    with screen.stage("brokers"):
        clock.advance_ms(4_000)
        assert "the first run is under way; now: brokers (4 s)" in foot()
    assert "waits" not in foot()
    with screen.stage("judge"):
        assert foot().splitlines()[0] == "brokers: 4.0 s"
        assert "the first run is under way; now: judge (0 s)" in foot()
    screen.seen(None, "no answer")
    assert "last run failed: no answer" in foot()
    assert "run 1; waits; every 30 s" in foot()
    assert "brokers: 4.0 s" not in foot()
