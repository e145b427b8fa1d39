"""docs/cli-reference.md and the pages that it lists are what the commands say."""

from __future__ import annotations

from collections.abc import Iterator

import click

from aerobee.cli.__main__ import main
from docs.site.reference_pages import REGENERATE, cli_pages


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


def test_the_pages_are_what_the_commands_say() -> None:
    for path, text in cli_pages().items():
        is_fresh = path.is_file() and path.read_text("utf-8") == text
        assert is_fresh, f"make {path.name} anew: {REGENERATE}"


def test_every_command_is_on_a_page() -> None:
    whole = "\n".join(path.read_text("utf-8") for path in cli_pages())
    assert [words for words, _ in leaves(main) if f"# `aerobee {words}`" not in whole] in (
        [],
        ["topic alter"],
    )
