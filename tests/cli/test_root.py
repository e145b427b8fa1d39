"""The command as a whole: help without imports, and how each kind of failure leaves it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from aerobee.bench.command import RUNS
from aerobee.cli.__main__ import COMMANDS, main
from aerobee.cli.failures import EnvironmentFailure, Failure, failure_from
from aerobee.cli.lazy_group import RootGroup
from aerobee.cli.options import timeout_option
from aerobee.runtime import errors


def root_with(error: BaseException) -> click.Command:
    root = RootGroup("root")

    @root.command("fail")
    def fail() -> None:
        raise error

    return root


class TakesParts(io.RawIOBase):
    """As a pipe may, even one that blocks."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)[:1_000]
        self.taken += part
        return len(part)


def test_unbuffered_output_is_whole_when_the_system_takes_only_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = TakesParts()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, "utf-8", write_through=True))  # type: ignore[type-var]
    root, lines = RootGroup("root"), "".join(f"line {number}\n" for number in range(10_000))

    @root.command("tell")
    def tell() -> None:
        click.echo(lines, nl=False)

    root.main(["tell"], standalone_mode=False)
    assert pipe.taken.decode() == lines


def test_help_lists_every_command_and_loads_none_of_them() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from aerobee.cli.__main__ import main\n"
        "result = CliRunner().invoke(main, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "heavy = {'grpc', 'numpy', 'uvloop', 'rich', 'aerobee.broker', 'aerobee.client_core'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "print(result.output)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    for command in COMMANDS:
        assert command.name in output
        assert command.short_help in output


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_each_command_loads_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def help_lines(command: click.Command, *path: str) -> list[str]:
    """Of a command and all below it, on a terminal of 80 columns."""
    result = CliRunner().invoke(main, [*path, "--help"], terminal_width=80)
    lines = result.output.splitlines()
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            lines += help_lines(below, *path, name)
    return lines


# The audit's help shows long commands, to be copied as they are.
@pytest.mark.parametrize(
    "name", ["", *(command.name for command in COMMANDS if command.name != "audit")]
)
def test_help_fits_a_terminal_of_80_columns(name: str) -> None:
    """Words that the terminal breaks are hard to read; names that are longer cannot be helped."""
    if name:
        (command,) = [each.load() for each in COMMANDS if each.name == name]
        lines = help_lines(command, name)
    else:
        lines = CliRunner().invoke(main, ["--help"], terminal_width=80).output.splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []


def test_the_help_of_bench_breaks_no_name() -> None:
    said = CliRunner().invoke(main, ["bench", "--help"], terminal_width=80).output
    assert [name for name in RUNS if not re.search(rf"(?<!-)\b{name}\b(?!-)", said)] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["produc"], "no such command 'produc'; did you mean 'produce'? See `aerobee --help`"),
        (["store", "ver"], "no such command 'ver'; did you mean 'verify'? See `aerobee store "),
        (["zzzz"], "no such command 'zzzz'; see `aerobee --help`"),
        (["--frob"], "no such option '--frob'; see `aerobee --help`"),
        (["consume"], "missing argument 'TOPIC'; see `aerobee consume --help`"),
        (
            ["group", "list", "--nameserver"],
            "option '--nameserver' requires an argument; see `aerobee group list --help`",
        ),
        (["broker", "--frob", "1"], "no such option '--frob'; see `aerobee broker --help`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_sentence_in_the_style_of_all_errors(
    arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, arguments, prog_name="aerobee")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"aerobee: {said}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_no_at_a_question_is_told_in_the_same_style() -> None:
    result = CliRunner().invoke(root_with(click.Abort()), ["fail"])
    assert (result.exit_code, result.stderr) == (1, "aerobee: aborted, nothing was changed\n")


def test_a_host_name_that_does_not_resolve_is_told_as_such() -> None:
    result = CliRunner().invoke(main, ["topic", "list", "--nameserver", "nohost.invalid:8081"])
    assert result.exit_code == 3
    assert result.stderr == (
        "aerobee: cannot reach the cluster: the host name nohost.invalid cannot be resolved; check "
        "--nameserver nohost.invalid:8081 and this machine's DNS\n"
    )


def test_a_client_command_does_not_load_the_broker() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from aerobee.cli.__main__ import main\n"
        "for name in ('produce', 'consume', 'topic', 'group', 'offset', 'cluster', 'up'):\n"
        "    assert CliRunner().invoke(main, [name, '--help']).exit_code == 0\n"
        "loaded = [name for name in sys.modules if name.startswith('aerobee.broker')]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.TopicNotFound("no topic 'x'"), 1),
        (errors.GroupNotFound("no group 'x'"), 1),
        (errors.TopicExists("there is a topic 'x'"), 1),
        (errors.IllegalName("topic name 'x y' is illegal"), 2),
        (errors.Unreachable("cannot reach 127.0.0.1:8081"), 3),
        (errors.NoBrokerAvailable("no broker is registered"), 3),
        (errors.StoreFailed("the disk is broken"), 4),
        (EnvironmentFailure("port 8081 is in use"), 3),
        (Failure("it did not work"), 4),
        (ExceptionGroup("tasks", [errors.Unreachable("cannot reach 127.0.0.1:8081")]), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_failure_is_one_sentence_and_an_exit_code(error: Exception, exit_code: int) -> None:
    result = CliRunner().invoke(root_with(error), ["fail"])
    assert result.exit_code == exit_code
    assert result.stderr.startswith("aerobee: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_ctrl_c_ends_with_130_and_without_a_word() -> None:
    result = CliRunner().invoke(root_with(KeyboardInterrupt()), ["fail"])
    assert result.exit_code == 130
    assert result.output == ""


def test_a_bug_keeps_its_traceback() -> None:
    result = CliRunner().invoke(root_with(ZeroDivisionError("bug")), ["fail"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_bug_among_failures_is_not_hidden() -> None:
    group = ExceptionGroup("tasks", [errors.Unreachable("away"), ZeroDivisionError("bug")])
    assert failure_from(group) is None
    result = CliRunner().invoke(root_with(group), ["fail"])
    assert result.exception is group


@pytest.mark.parametrize(
    ("words", "timeout_ms"),
    [
        ([], 2_000),
        (["--timeout", "200ms"], 200),
        (["--timeout", "5s"], 5_000),
        (["--timeout", "5"], 5_000),
        (["--timeout-ms", "700"], 700),
    ],
    ids=str,
)
def test_a_timeout_is_in_seconds_or_has_a_unit_and_its_former_spelling_works(
    words: list[str], timeout_ms: int
) -> None:
    @click.command()
    @timeout_option(2_000, "How long.")
    def command(timeout_ms: int) -> None:
        click.echo(timeout_ms)

    assert CliRunner().invoke(command, words).output == f"{timeout_ms}\n"
    assert CliRunner().invoke(command, ["--timeout", "0s"]).exit_code == 2
    assert CliRunner().invoke(command, ["--timeout", "soon"]).exit_code == 2


def test_streams_that_the_caller_closed_end_no_command() -> None:
    program = [sys.executable, "-m", "aerobee.cli", "topic", "list"]
    closed = ["sh", "-c", 'exec "$@" <&- >&-', "sh", *program, "--nameserver", "127.0.0.1:1"]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("aerobee: "), done.stderr
