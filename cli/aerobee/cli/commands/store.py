"""`aerobee store`: what a store folder holds, without a broker."""

from __future__ import annotations

import click

from aerobee.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS = (
    LazyCommand("dump", "aerobee.cli.store.dump:store_dump", "Print a store's contents."),
    LazyCommand("verify", "aerobee.cli.store.verify:store_verify", "Check all of a store's files."),
    LazyCommand("repair", "aerobee.cli.store.repair:store_repair", "Plan or apply a repair."),
    LazyCommand("stats", "aerobee.cli.store.stats:store_stats", "Show what fills a store."),
)


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def store() -> None:
    """Inspect, check and repair store folders without a broker."""
