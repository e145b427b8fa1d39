"""docs/cli-reference.md is what the commands say; and what all of them have alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click

from aerobee.cli.__main__ import main
from aerobee.cli.cli_reference import SERVICES, cli_reference

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "cli").rglob("*.py"))
PAGE = ROOT / "docs" / "cli-reference.md"

WITHOUT_JSON = frozenset(
    {
        # They run until they are stopped; `up` has --ready-file.
        *("up", "demo", "nameserver", "broker"),
        # They print a file: a script for a shell, a page.
        *("completion", "config reference"),
        # They have --format json.
        *("consume", "audit"),
        # They print JSON in any case.
        *("transaction show", "dead-letter show"),
    }
)


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, with their words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, *path, name)
    else:
        yield " ".join(path), command


def lacking(option: str) -> set[str]:
    """The commands without an option."""
    return {
        words
        for words, command in leaves(main)
        if not any(option in each.opts for each in command.params)
    }


def test_the_page_is_what_the_commands_say() -> None:
    is_fresh = PAGE.read_text("utf-8") == cli_reference(main)
    assert is_fresh, "make it anew: aerobee config reference --commands > docs/cli-reference.md"


def test_every_command_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [words for words, _ in leaves(main) if f"# `aerobee {words}`" not in page] in (
        [],
        ["topic alter"],
    )


def test_all_commands_but_services_can_be_quiet() -> None:
    assert lacking("--quiet") <= {words.removeprefix("aerobee ") for words in SERVICES}


def test_commands_print_json_alike_and_those_that_do_not_are_known() -> None:
    assert lacking("--json") == WITHOUT_JSON - {"broker"}


def test_a_listing_that_drops_columns_can_show_all_of_them() -> None:
    wide = {words for words, _ in leaves(main)} - lacking("--wide")
    assert wide - {"topic alter"} == {
        *("cluster show", "topic list", "topic show", "group list", "group show", "group lag"),
        *("message query", "schedule list", "transaction list", "dead-letter list"),
    }
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                given = {each.arg for each in node.keywords}
                assert "droppable" not in given or "wide" in given, f"{source}:{node.lineno}"
