"""A service's flags are its configuration's keys."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.config_command import ConfigCommand
from aerobee.runtime.config import Loaded
from aerobee.runtime.config_check import Risk
from aerobee.runtime.log import LogConfig


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


@dataclass(frozen=True, kw_only=True)
class Section:
    interval_ms: int = 500
    """How often."""
    mode: Mode = Mode.FAST  # how sure


@dataclass(frozen=True, kw_only=True)
class Config:
    listen: str = "127.0.0.1:1"
    """Where to serve."""
    peers: tuple[str, ...] = ("a", "b")
    root: Path
    flush: Section = field(default_factory=Section)
    log: LogConfig = field(default_factory=LogConfig)

    def risks(self) -> list[Risk]:
        return [Risk(("listen",), "nobody is there")] if self.listen == "nowhere" else []


MakeCommand = Callable[..., ConfigCommand]


@pytest.fixture
def loaded() -> list[Config]:
    return []


@pytest.fixture
def command(loaded: list[Config]) -> ConfigCommand:
    def run(config: Loaded[Config], on_hangup: Callable[[], None] | None) -> int:
        loaded.append(config.config)
        return 0 if config.config.listen != "refuse" else 3

    return ConfigCommand("thing", Config, environment_prefix="THING", run=run, help="A thing.")


def test_flags_win_over_environment_and_environment_over_file(
    command: ConfigCommand, loaded: list[Config], tmp_path: Path
) -> None:
    file = tmp_path / "thing.toml"
    file.write_text('listen = "file"\nroot = "/file"\n[flush]\ninterval_ms = 1\nmode = "safe"\n')
    result = CliRunner().invoke(
        command,
        ["--config", str(file), "--flush-interval-ms", "3", "--peers", "x,y,z"],
        env={"THING_LISTEN": "environment", "THING_FLUSH_INTERVAL_MS": "2"},
    )
    assert result.exit_code == 0, result.output
    assert loaded == [
        Config(
            listen="environment",
            peers=("x", "y", "z"),
            root=Path("/file"),
            flush=Section(interval_ms=3, mode=Mode.SAFE),
        )
    ]


def test_the_file_can_be_named_by_the_environment(
    command: ConfigCommand, loaded: list[Config], tmp_path: Path
) -> None:
    file = tmp_path / "thing.toml"
    file.write_text('root = "/file"\n')
    result = CliRunner().invoke(command, [], env={"THING_CONFIG": str(file)})
    assert result.exit_code == 0, result.output
    assert loaded[0].root == Path("/file")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "root is not set"),
        (["--root", "/", "--flush-interval-ms", "soon"], "a whole number"),
        (["--root", "/", "--flush-mode", "wild"], "one of fast, safe"),
        (["--root", "/", "--flush-speed", "1"], "No such option"),
        (["--root", "/", "--config", "/none.toml"], "cannot read the configuration file"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(
    command: ConfigCommand, arguments: list[str], told: str
) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_service_decides_the_exit_code(command: ConfigCommand) -> None:
    assert CliRunner().invoke(command, ["--root", "/", "--listen", "refuse"]).exit_code == 3


def test_risky_settings_are_logged_at_the_start(command: ConfigCommand) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        result = CliRunner().invoke(command, ["--root", "/", "--listen", "nowhere"])
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert result.exit_code == 0
    assert 'WARNING cli.config_command risky settings why="nobody is there"' in result.stderr


def test_the_help_tells_each_field_in_its_own_words(command: ConfigCommand) -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for phrase in (
        "--listen TEXT Where to serve. [default: 127.0.0.1:1]",
        "--peers TEXT [default: a,b]",
        "--root PATH [required]",
        "--flush-interval-ms INTEGER How often. [default: 500]",
        "--flush-mode fast|safe how sure [default: fast]",
    ):
        assert phrase in text


def test_a_service_starts_without_a_standard_input(
    command: ConfigCommand, loaded: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python has for it when file descriptor 0 is closed."""
    file = tmp_path / "thing.toml"
    file.write_text('root = "/r"\n', "utf-8")
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr("sys.stdin", None)
    try:
        command.main(["--config", str(file)], standalone_mode=False)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert [config.root for config in loaded] == [Path("/r")]


CLOSED_INPUT = """
import os, sys, aerobee.cli.config_command as cli
os.close(0)
cli._fill_standard_files()
print(os.readlink("/proc/self/fd/0"), os.open("/", os.O_RDONLY) > 2)
"""


def test_no_socket_gets_the_number_of_a_standard_file_that_was_closed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_INPUT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "/dev/null True\n"
