"""docs/cli-reference.md is what the commands say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from aerobee.cli.__main__ import main
from aerobee.cli.cli_reference import cli_reference

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli-reference.md"


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


def test_the_page_is_what_the_commands_say() -> None:
    is_fresh = PAGE.read_text("utf-8") == cli_reference(main)
    assert is_fresh, "make it anew: aerobee config reference --commands > docs/cli-reference.md"


def test_every_command_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    assert [words for words, _ in leaves(main) if f"# `aerobee {words}`" not in page] in (
        [],
        ["topic alter"],
    )
