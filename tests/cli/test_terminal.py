"""What others wrote never commands a terminal, and a narrow terminal stays readable."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from aerobee.cli import cluster_picture
from aerobee.cli.failures import Failure
from aerobee.cli.output import counted, print_json, print_table, remark, say
from aerobee.cli.store import json_stream
from tests.support.local_up import AEROBEE, PATIENCE_S, Up, running, sent

CLI = Path(cluster_picture.__file__).parent
HOSTILE = "e\x1b]0;owned\x07v\x1b[2Ji\r\nFAKE\x9b31ml\u202e"
SHOWN = r"e\x1b]0;owned\x07v\x1b[2Ji\r\nFAKE\x9b31ml\u202e"
OWN_STYLE = re.compile(r"\x1b\[[01]m")
"""Bold and back, for headers."""


def commands_in(said: str) -> str:
    """The characters of an output that a terminal obeys, without the ends of lines and our own."""
    rest = OWN_STYLE.sub("", said.replace("\r\n", "\n"))
    return "".join(each for each in rest if not each.isprintable() and each != "\n")


on_terminal_and_in_a_pipe = pytest.mark.parametrize(
    "is_terminal", [True, False], ids=["terminal", "pipe"]
)


@pytest.mark.parametrize(
    "output",
    [
        lambda: print_table(["name", "n"], [[HOSTILE, 1]], title=HOSTILE),
        lambda: print_table([HOSTILE], [], empty=HOSTILE),
        lambda: say(HOSTILE),
        lambda: remark(HOSTILE),
        lambda: Failure(HOSTILE).show(),
        lambda: print_json({HOSTILE: [HOSTILE]}),
        lambda: json_stream.write_json({HOSTILE: [HOSTILE]}, sys.stdout.write),
    ],
    ids=["table", "empty", "say", "remark", "failure", "json", "json stream"],
)
@on_terminal_and_in_a_pipe
def test_no_way_out_passes_control_characters(
    output: Callable[[], None],
    is_terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    output()
    said = "".join(capsys.readouterr())
    assert "owned" in said
    assert commands_in(said) == ""


def test_json_says_the_same_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({HOSTILE: [HOSTILE]})
    assert json.loads(capsys.readouterr().out) == {HOSTILE: [HOSTILE]}


def test_commands_print_through_one_place() -> None:
    """So that no listing can forget to clean what it prints."""
    found = {
        path.name
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "click.echo"
    }
    assert found == {"output.py", "failures.py"}


ROW = ["broker-a", 0, "127.0.0.1:10911", "12.5 MiB", "A1B2C3D4E5F60718293A4B5C6D7E8F90"]
HEADERS = ["broker", "id", "address", "log", "instance"]


def test_a_narrow_terminal_gets_fewer_columns_and_no_folded_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "62")
    print_table(HEADERS, [ROW], droppable=("log", "address"), wide=False)
    said = capsys.readouterr()
    lines = OWN_STYLE.sub("", said.out).splitlines()
    assert lines[0].split() == ["broker", "id", "address", "instance"] or len(lines) == 3
    assert max(map(len, lines)) <= 62
    assert "A1B2C3D4E5F60718293A4B5C6D7E8F90" in lines[2]
    assert "(--wide shows all)" in said.err
    print_table(HEADERS, [ROW], droppable=("log", "address"), wide=True)
    assert OWN_STYLE.sub("", capsys.readouterr().out).splitlines()[2].split() == [
        *("broker-a", "0", "127.0.0.1:10911", "12.5", "MiB"),
        "A1B2C3D4E5F60718293A4B5C6D7E8F90",
    ]


LONG = "ValueError: no such flight" + 40 * ", and so on"


@pytest.mark.parametrize(
    "text", [LONG, "\N{CJK UNIFIED IDEOGRAPH-6C34}" * 90], ids=["long", "broad"]
)
@pytest.mark.parametrize("width", [70, 81, 119])
def test_a_column_that_may_be_cut_fills_the_room(
    width: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [[ROW[4], ROW[0], text], [ROW[4], ROW[0], "short"]]
    print_table(["id", "from", "why"], rows, droppable=("from",), cuttable="why", wide=False)
    said = capsys.readouterr()
    rules, cut, whole = OWN_STYLE.sub("", said.out).splitlines()[1:]
    assert cell_len(rules) == width == cell_len(cut)
    assert cut.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert whole.endswith("  short")
    assert ("not shown, for lack of room: from" in said.err) == (str(ROW[0]) not in cut)
    print_table(["id", "from", "why"], rows, droppable=("from",), cuttable="why")
    assert text in capsys.readouterr().out


def test_a_pipe_gets_all_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(HEADERS, [ROW], droppable=("log", "address"), wide=False)
    assert capsys.readouterr().out.splitlines()[0].split() == HEADERS


@on_terminal_and_in_a_pipe
def test_an_empty_listing_says_what_to_do(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    print_table(["topic"], [], empty="no topics yet; create one")
    said = capsys.readouterr()
    assert said.err == "no topics yet; create one\n"
    assert said.out == ("" if is_terminal else "topic\n")
    # Of an answer that has other parts an empty table says nothing.
    print_table(["member"], [], title="readers: 0 members", empty="no members")
    assert tuple(capsys.readouterr()) == ("readers: 0 members\n", "no members\n")


def test_one_is_not_several() -> None:
    assert counted(1, "message") == "1 message"
    assert counted(2_000, "message") == "2,000 messages"
    assert counted(2, "entry", "entries") == "2 entries"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up")) as up:
        line = {
            "body": HOSTILE,
            "tag": "".join(HOSTILE.split()),
            "keys": ["key", "k\x1b[7m"],
            "properties": {"p\x1b[5m": "v\x1b[2J"},
        }
        sent(up, "esc", [json.dumps(line)], "--format", "json")
        yield up


def shown_on_a_terminal(cluster: Up, *arguments: str, typed: bytes = b"", expect: int = 0) -> str:
    """What a command says to a terminal of 80 columns, at which somebody may type."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*AEROBEE, *arguments],
        stdin=follower if typed else subprocess.DEVNULL,
        stdout=follower,
        # Of the store commands a bar that moves, which is our own.
        stderr=subprocess.DEVNULL if arguments[0] == "store" else follower,
        env={
            **os.environ,
            "AEROBEE_NAMESERVER": cluster.document()["nameserver"],
            "COLUMNS": "80",
            "TERM": "xterm",
        },
    )
    os.close(follower)
    os.write(leader, typed)
    said = b""
    try:
        # The terminal hangs up when the last process on it has ended.
        while data := _read(leader):
            said += data
    finally:
        os.close(leader)
        assert process.wait(PATIENCE_S) == expect, said
    return said.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65_536)
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("message", "query", "esc", "--key", "key"),
        ("message", "query", "esc", "--key", "key", "--json"),
        ("message", "get", "broker-a:0"),
        ("message", "get", "broker-a:0", "--json"),
        ("consume", "esc", "--group", "text", "--count", "1"),
        ("consume", "esc", "--group", "json", "--count", "1", "--format", "json"),
        ("store", "dump", "DATA/brokers/broker-a", "--messages-every", "1"),
        ("store", "dump", "DATA/brokers/broker-a", "--json"),
        ("store", "stats", "DATA/brokers/broker-a"),
    ],
    ids=" ".join,
)
def test_a_hostile_message_is_only_shown(cluster: Up, arguments: tuple[str, ...]) -> None:
    named = [each.replace("DATA", str(cluster.data)) for each in arguments]
    assert commands_in(shown_on_a_terminal(cluster, *named)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("cluster", "show"), ("topic", "list"), ("topic", "show", "esc"), ("group", "list")],
    ids=" ".join,
)
def test_a_listing_fits_a_terminal_of_80_columns(cluster: Up, arguments: tuple[str, ...]) -> None:
    said = OWN_STYLE.sub("", shown_on_a_terminal(cluster, *arguments))
    assert max(map(len, said.splitlines())) <= 80
    assert arguments[1] == "list" or "broker-a " in said


@pytest.mark.slow
def test_a_pipe_gets_a_body_as_it_is(cluster: Up) -> None:
    done = cluster.run("consume", "esc", "--group", "raw", "--count", "1")
    assert (
        done.stdout == HOSTILE.replace("\r\n", "\n") + "\n"
    )  # text mode reads ends of lines alike


@pytest.mark.slow
def test_an_id_is_whole_on_a_terminal_of_80_columns(cluster: Up) -> None:
    said = shown_on_a_terminal(cluster, "message", "query", "esc", "--key", "key")
    document = json.loads(cluster.run("message", "query", "esc", "--key", "key", "--json").stdout)
    assert document["messages"][0]["messageId"] in said


@pytest.mark.slow
def test_no_bar_is_drawn_over_lines_that_are_typed(cluster: Up, tmp_path: Path) -> None:
    """Of a file there is one on the same terminal."""
    end_of_typing = b"\x04"
    typed = shown_on_a_terminal(cluster, "produce", "typed", typed=b"one\ntwo\n" + end_of_typing)
    assert "sent 2 messages" in typed
    assert "\x1b" not in typed
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    assert "\x1b" in shown_on_a_terminal(cluster, "produce", "typed", str(lines))


@pytest.mark.slow
def test_nobody_is_asked_about_a_topic_that_is_not_there(cluster: Up) -> None:
    said = shown_on_a_terminal(cluster, "topic", "delete", "nothere", typed=b"y\n", expect=1)
    assert "nothere" in said
    assert "Delete topic" not in said


@pytest.mark.slow
def test_a_terminal_is_told_what_a_recall_handle_is_for(cluster: Up, tmp_path: Path) -> None:
    """And one message is not several, in the bar either."""
    line = tmp_path / "line"
    line.write_text("one\n")
    said = shown_on_a_terminal(cluster, "produce", "later", str(line), "--delay", "1h")
    assert "recall handle, for `aerobee schedule recall`:" in said
    assert "1 messages" not in said
