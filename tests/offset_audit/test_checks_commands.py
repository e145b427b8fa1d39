"""Commands of findings can be pasted into a shell, whatever users called their things."""

from __future__ import annotations

import ast
import re
import shlex
from itertools import chain
from pathlib import Path

import click
import pytest

from aerobee.offset_audit import checks, rules
from aerobee.offset_audit.checks.data.stores import REPAIR, VERIFY
from aerobee.offset_audit.checks.progress.telling import findings
from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.outputs.verdict import effect_of
from aerobee.offset_audit.rules.texts import command_text, phrase, reset_to, shell_word
from tests.support.command_parsing import parsed

pytestmark = pytest.mark.slow

NAMES = [
    "plain-name_1.of@%+=:,/all",
    "with space",
    "it's",
    "a;reboot",
    "$(reboot)`reboot`",
    'double "quotes"',
    "back\\slash",
    "line\nbreak",
    "ends in a line break\n",
    "",
    "größe",
    "-x|y",
]


def test_words_are_quoted_as_python_quotes_them(engine: Engine) -> None:
    rows = engine.frame("name string", [(name,) for name in NAMES])
    found = rows.select("name", F.expr(shell_word("name")).alias("word")).collect()
    assert {row["name"]: row["word"] for row in found} == {
        name: shlex.quote(name) for name in NAMES
    }


def test_each_command_takes_a_name_or_path_as_one_argument(engine: Engine) -> None:
    rows = engine.frame("store string", [(name,) for name in NAMES]).select(
        "store",
        F.expr(command_text(VERIFY)).alias("verify"),
        F.expr(command_text(REPAIR)).alias("repair"),
        F.expr(command_text("aerobee topic show {store}")).alias("show"),
    )
    for row in rows.collect():
        assert shlex.split(row["verify"]) == ["aerobee", "store", "verify", row["store"]]
        assert shlex.split(row["repair"])[3:] == [row["store"]]
        assert shlex.split(row["show"])[2:] == ["show", row["store"]]


def test_findings_of_groups_and_topics_quote_both(engine: Engine) -> None:
    name = "it's; a name"
    rows = engine.frame(
        "group string, worst struct<topic: string, broker_name: string, queue_id: int>, "
        "affected long",
        [(name, {"topic": name, "broker_name": name, "queue_id": 3}, 1)],
    )
    told = findings(
        rows, "SKIPPED", "'CRITICAL'", evidence=phrase("of {group}"), command=reset_to("42")
    )
    (row,) = told.collect()
    assert shlex.split(row["command"])[2:] == [
        *("reset", name, name, "--queue", f"{name}:3", "--to-offset", "42", "--dry-run"),
    ]
    assert row["evidence"] == f"of {name}"


def test_what_is_not_known_is_no_argument(engine: Engine) -> None:
    nothing = engine.frame("store string", [(None,)])
    row = nothing.select(
        F.expr(command_text("aerobee topic show {store}", otherwise="aerobee cluster show")).alias(
            "show"
        ),
        F.expr(command_text(VERIFY)).alias("verify"),
    ).collect()[0]
    assert (row["show"], row["verify"]) == ("aerobee cluster show", "")


def written_commands() -> list[str]:
    """Every text of the checks that begins a command, with 1 for whatever is put into it."""
    found = set()
    sources = (Path(each.__path__[0]).rglob("*.py") for each in (checks, rules))
    for path in chain.from_iterable(sources):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else "1" for one in node.values]
                text = "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if text.startswith("aerobee ") and len(text.split()) > 2:
                found.add(re.sub(r"\{[^{}]*\}", "1", text).strip())
    return sorted(found)


def test_the_checks_have_commands_that_show_and_commands_that_cure() -> None:
    effects = {effect_of(one) for one in written_commands()}
    assert effects == {
        "shows",
        "cures",
        "shows; cures without --dry-run",
        "shows; cures with --apply",
    }


@pytest.mark.parametrize("command", written_commands())
def test_a_suggested_command_is_one_that_there_is(command: str, tmp_path: Path) -> None:
    words = command.split()[1:]
    try:
        parsed(words)
    except click.MissingParameter:  # it is put behind
        parsed([*words, str(tmp_path) if words[0] == "store" else "1"])


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("aerobee cluster show", "shows"),
        ("aerobee group show 'a --dry-run'", "shows"),
        ("aerobee offset delete billing orders", "cures"),
        (
            "aerobee offset reset billing orders --to first --dry-run",
            "shows; cures without --dry-run",
        ),
        ("aerobee store repair --rebuild-index /data", "shows; cures with --apply"),
    ],
)
def test_a_command_says_whether_it_cures(command: str, effect: str) -> None:
    assert effect_of(command) == effect
