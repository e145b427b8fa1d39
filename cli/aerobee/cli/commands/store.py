"""`aerobee store`: what lies in a store folder, without a broker."""

from __future__ import annotations

import click

from aerobee.cli.lazy_group import LazyCommand, LazyGroup

_TOOLS = "aerobee.cli.store_tools"

COMMANDS = (
    LazyCommand("dump", "aerobee.cli.store_dump:store_dump", "Print a store's content."),
    LazyCommand("verify", f"{_TOOLS}.verify_command:store_verify", "Check all of a store's files."),
    LazyCommand("repair", f"{_TOOLS}.repair_command:store_repair", "Plan or do a repair."),
    LazyCommand("stats", f"{_TOOLS}.stats_command:store_stats", "Show what fills a store."),
)


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def store() -> None:
    """Look into store folders without a broker, check and repair them."""
