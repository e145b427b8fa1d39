"""`aerobee store`: what lies in a store folder, without a broker."""

from __future__ import annotations

import click

from aerobee.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS = (LazyCommand("dump", "aerobee.cli.store_dump:store_dump", "Print a store's content."),)


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def store() -> None:
    """Look into store folders, offline and read-only."""
