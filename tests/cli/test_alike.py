"""Options that people know from one command are there in all others, and mean the same."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

import aerobee.cli.output
from aerobee import AdminClient
from aerobee.cli.__main__ import main
from aerobee.cli.target import Target
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.runtime.errors import Unreachable
from aerobee.store.format.recall_handle import RecallHandle
from tests.support.local_up import Up, numbers, received, running, sent

CLI = Path(aerobee.cli.output.__file__).parent

SERVICES: Final = {"broker", "nameserver", "console"}
"""Their log says what they do, and their configuration how."""
WITHOUT_JSON: Final[Mapping[str, str]] = {
    **dict.fromkeys((*SERVICES, "up", "demo"), "they serve, or tell a story"),
    "completion": "prints a script",
    "config reference": "prints a page",
}
WITHOUT_WIDE: Final[Mapping[str, str]] = {
    "cluster clean": "one table of four narrow columns, where something was lost",
    **dict.fromkeys(("store dump", "store stats"), "reports, of many tables with few columns"),
}
WITHOUT_TIMEOUT: Final[Mapping[str, str]] = {
    "consume": "waits for messages; it has --idle-timeout",
    "console": "serves; how long a page waits is its own",
    "outbox relay": "sends for as long as it runs",
    "audit": "reads for as long as the cluster's size asks for",
}
OWN_TIMEOUT: Final[Mapping[str, str]] = {
    "produce": "of each batch, with its retries",
    "broker handover": "of the hand-over as a whole",
}
OTHERWISE: Final[Mapping[tuple[str, str], str]] = {
    ("--json", "dead-letter show"): "says that its answer is always JSON",
    ("--json", "transaction show"): "says that its answer is always JSON",
    ("--json", "schedule show"): "says that its answer is always JSON",
    ("--json", "audit-log show"): "prints a file's lines, one document each",
    ("--json", "consume"): "prints lines, one object each, as --format json",
    ("--cluster", "etcd note-backup"): "names the cluster whose metrics change",
    ("--cluster", "etcd save"): "names the cluster whose metrics change",
}


def leaves(command: click.Command = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """(its words, a command) for all that do something."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, f"{path} {name}".strip())
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command


COMMANDS: Final = dict(leaves())


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in each.opts
    }


def having(option: str) -> set[str]:
    return {name for name, command in COMMANDS.items() if option in options_of(command)}


def test_every_command_can_be_quiet_and_answer_in_json() -> None:
    assert len(COMMANDS) > 60
    assert COMMANDS.keys() - having("--quiet") == SERVICES
    assert COMMANDS.keys() - having("--json") == WITHOUT_JSON.keys()


def test_a_terminal_of_80_columns_has_room_for_what_each_command_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for group in {name.rpartition(" ")[0] for name in COMMANDS}:
        help = CliRunner().invoke(main, [*group.split(), "--help"]).stdout
        lines = help.rstrip().partition("\nCommands:\n")[2].split("\n")
        wrong = [line for line in lines if not re.fullmatch(r"  [a-z-]+  +[A-Z].*\.", line)]
        assert not wrong, f"folded: {wrong}"
        assert not [line for line in lines if line.endswith("...") or len(line) > 80]


@pytest.mark.parametrize(("command", "code"), [("consume t", 2), ("audit", 64)])
def test_json_agrees_with_format_or_is_refused(command: str, code: int) -> None:
    for words in ("--json --format text", "--format text --json"):
        arguments = [*command.split(), *words.split()]
        result = CliRunner().invoke(main, arguments, prog_name="aerobee")
        assert result.exit_code == code
        assert result.output == (
            "aerobee: --json means --format json: leave out --format text; "
            f"see `aerobee {command.split()[0]} --help`\n"
        )


def test_whatever_asks_the_cluster_takes_a_timeout() -> None:
    assert having("--nameserver") - having("--timeout") == WITHOUT_TIMEOUT.keys()


@pytest.mark.parametrize(
    "option", ["--json", "--quiet", "--wide", "--yes", "--dry-run", "--nameserver", "--cluster"]
)
def test_an_option_is_explained_in_the_same_words(option: str) -> None:
    told = {
        name: options_of(COMMANDS[name])[option].help
        for name in having(option)
        if (option, name) not in OTHERWISE and name not in SERVICES | {"audit"}
    }
    assert len(set(told.values())) == 1, told


def test_all_questions_have_one_timeout() -> None:
    asking = having("--nameserver") - WITHOUT_TIMEOUT.keys() - OWN_TIMEOUT.keys()
    told = {name: options_of(COMMANDS[name])["--timeout"].help for name in asking}
    assert len(set(told.values())) == 1, told


# ------------------------------------------------------------------------------ tables


class Calls:
    """Which functions of the command line call which, as the sources say."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for path in CLI.rglob("*.py"):
            name = ".".join(("aerobee.cli", *path.relative_to(CLI).with_suffix("").parts))
            self._read(name, ast.parse(path.read_text()))

    def _read(self, module: str, tree: ast.Module) -> None:
        imported = {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._calls[module, node.name] = {
                    imported.get(call.func.id, (module, call.func.id))
                    for call in ast.walk(node)
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                }

    def reach(self, function: tuple[str, str], wanted: set[tuple[str, str]]) -> bool:
        seen, left = set[tuple[str, str]](), {function}
        while left:
            seen |= left
            left = {each for one in left for each in self._calls.get(one, ())} - seen
        return bool(seen & wanted)


def test_whatever_prints_a_table_shows_all_of_it_on_demand() -> None:
    calls = Calls()
    tables = {("aerobee.cli.output", name) for name in ("print_table", "print_documents")}
    printing = set()
    for name, command in COMMANDS.items():
        function = inspect.unwrap(command.callback) if command.callback else None
        if function and calls.reach((function.__module__, function.__name__), tables):
            printing.add(name)
    assert printing - WITHOUT_WIDE.keys() == having("--wide")
    assert WITHOUT_WIDE.keys() <= printing, "an exception that is none"
    for source in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call):
                given = {each.arg for each in node.keywords}
                assert "droppable" not in given or "wide" in given, f"{source}:{node.lineno}"


# ------------------------------------------------------------------------------ asking

TIMEOUT: Final = ("--timeout", "77s")
HANDLE: Final = RecallHandle("t", "broker-a", 1, "id").encode()
WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("schedule recall", "schedule deliver-now"), f"{HANDLE} --yes"),
    "quota set": "default send_bytes=1",
    "quota delete": "default",
    "message get": "00" * 16,
    "message query": "topic --key k",
    "offset reset": "group topic --to first --yes",
    "group configure": "group --retries-max 3",
    "cluster remove-replica": "broker-a 1 --yes",
    "schedule move": f"{HANDLE} --delay 3s",
    "topic alter": "topic --permission r",
    "topic update": "topic --permission r",
    "topic spread": "topic --yes",
    "schedule add": "name topic --every 1m --body x",
    "acl add": "user Topic:t Pub",
    "acl test": "user Topic:t Pub",
}
"""Where one word for each argument, and --yes, are not right."""
WITH_SCHEMA: Final = ("topic schema check", "topic schema set")


def words_for(name: str) -> list[str]:
    if name in WORDS:
        return [*name.split(), *WORDS[name].split()]
    needed = [
        str(each.name)
        for each in COMMANDS[name].params
        if isinstance(each, click.Argument) and each.required
    ]
    return [*name.split(), *needed, *(["--yes"] if name in having("--yes") else [])]


def test_all_commands_ask_by_the_one_client_and_keep_its_timeout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[float] = []
    asked_ms: set[int] = set()

    def admin_client(target: Target) -> AdminClient:
        made.append(target.timeout_s)
        return open_client(target)

    async def call(*_: object, timeout_ms: int, **__: object) -> None:
        asked_ms.add(timeout_ms)
        raise Unreachable("cannot reach 127.0.0.1:1")

    open_client = Target.admin_client
    monkeypatch.setattr(Target, "admin_client", admin_client)
    monkeypatch.setattr(Nameservers, "call", call)
    wish = tmp_path / "wish.yaml"
    wish.write_text("topics:\n  - name: t\n")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    files = {
        "apply": ["apply", "-f", str(wish), "--yes"],
        **{name: [*name.split(), "t", str(schema)] for name in WITH_SCHEMA},
    }
    wrong = {}
    for name in having("--nameserver") - WITHOUT_TIMEOUT.keys() - {"produce"}:
        made.clear()
        asked_ms.clear()
        words = files.get(name) or words_for(name)
        result = CliRunner().invoke(main, [*words, "--nameserver", "127.0.0.1:1", *TIMEOUT])
        wanted_ms = 5_000 if name in OWN_TIMEOUT else 77_000
        # Of a question that is asked again what is left counts.
        in_time = bool(asked_ms) and all(wanted_ms / 2 < each <= wanted_ms for each in asked_ms)
        is_kept = made == [wanted_ms / 1_000] and in_time
        if not is_kept or result.stderr.count("\n") != 1:
            wrong[name] = (made[:], asked_ms.copy(), result.exit_code, result.output)
    assert wrong == {}


# ------------------------------------------------------------------------------ a cluster

READING: Final[Mapping[str, str]] = {
    "topic list": "",
    "topic show": "seen",
    "topic spread": "seen --preview",
    "group list": "",
    "group show": "readers",
    "group lag": "",
    "message query": "seen --key none",
    "schedule list": "",
    "schedule recurring": "",
    "transaction list": "",
    "dead-letter list": "readers",
    "offset reset": "readers seen --to first --dry-run",
    "offset delete": "readers seen --dry-run",
    "user list": "",
    "acl list": "",
    "quota list": "",
    "cluster show": "",
    "broker-group show": "broker-a",
    "version": "",
    "doctor": "",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up")) as up:
        up.run("topic", "create", "seen", "--queues", "2")
        sent(up, "seen", numbers(4))
        received(up, "seen", "readers", 4)
        yield up


def said(cluster: Up, *words: str) -> Result:
    nameserver = cluster.document()["nameserver"]
    return CliRunner().invoke(main, [*words, "--nameserver", nameserver])


@pytest.mark.slow
def test_the_options_change_only_what_they_say(cluster: Up) -> None:
    assert having("--wide") - {"etcd status"} <= READING.keys()
    for name, rest in READING.items():
        words = (*name.split(), *rest.split())
        plain = said(cluster, *words)
        assert plain.exit_code in (0, 1), (name, plain.output)
        for option in ("--json", "--quiet", "--wide"):
            if option in options_of(COMMANDS[name]):
                result = said(cluster, *words, option)
                assert result.exit_code == plain.exit_code, (name, option, result.output)
                if option == "--json":
                    json.loads(result.stdout)
                else:
                    assert header(result) == header(plain), (name, option)
                if option == "--quiet":
                    assert result.stderr == "", name
        assert said(cluster, *words, "--timeout", "20s").exit_code == plain.exit_code, name


def header(result: Result) -> list[str]:
    """Words of the answer without numbers, which move."""
    return [word for word in result.stdout.split() if word.isalpha()]
