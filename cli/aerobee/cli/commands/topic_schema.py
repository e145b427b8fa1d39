"""`aerobee topic schema`: what the bodies of a topic are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import topic_names
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.options import json_option, yes_option
from aerobee.cli.output import print_json, remark, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee import AdminClient

schema_file = click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)


@click.group()
def schema() -> None:
    """Show, check and set the schema of a topic's bodies.

    FILE has JSON Schema, or what `TypedTopic.schema()` gives for protobuf; -: standard input.
    """


@schema.command()
@click.argument("topic", shell_complete=topic_names)
@json_option
@target_options
def show(target: Target, topic: str, as_json: bool) -> None:
    """Print the schema of TOPIC. Exit code 1: it has none, or there is no such topic."""
    found = target.administer(lambda admin: admin.topics.schema(topic))
    if as_json:
        print_json({"topic": topic, "schema": found or None})
    if not found:
        remark(f"topic {topic} has no schema")
        raise click.exceptions.Exit(NEGATIVE)
    if not as_json:
        say(found)


@schema.command()
@click.argument("topic", shell_complete=topic_names)
@schema_file
@json_option
@target_options
def check(target: Target, topic: str, file: Path, as_json: bool) -> None:
    """Say whether TOPIC may get the schema of FILE.

    Exit code 1: readers and writers of this schema and of the present one do not understand each
    other.
    """
    from aerobee.client_core.schemas import conflicts, parsed

    text = _read(file)
    parsed(text)
    before = target.administer(lambda admin: admin.topics.schema(topic))
    found = conflicts(before, text) if before else []
    if as_json:
        print_json({"topic": topic, "compatible": not found, "conflicts": found})
    elif not found:
        say("compatible" if before else f"compatible: topic {topic} has no schema yet")
    else:
        for each in found:
            say(each)
    if found:
        raise click.exceptions.Exit(NEGATIVE)


@schema.command("set")
@click.argument("topic", shell_complete=topic_names)
@schema_file
@click.option("--force", is_flag=True, help="Also if it is incompatible with the present one.")
@json_option
@target_options
def set_(target: Target, topic: str, file: Path, force: bool, as_json: bool) -> None:
    """Set the schema of TOPIC, if FILE is compatible with the present one."""
    text = _read(file)
    forced = target.administer(lambda admin: admin.topics.set_schema(topic, text, force=force))
    if as_json:
        print_json({"topic": topic, "forced": forced})
        return
    for each in forced:
        remark(each)
    say(f"topic {topic} has a schema")


@schema.command()
@click.argument("topic", shell_complete=topic_names)
@yes_option
@json_option
@target_options
def remove(target: Target, topic: str, yes: bool, as_json: bool) -> None:
    """Take the schema away from TOPIC."""
    from aerobee.cli.options import confirm

    confirm(f"Remove the schema of {topic}?", yes=yes)

    async def question(admin: AdminClient) -> None:
        await admin.topics.set_schema(topic, "")

    target.administer(question)
    if as_json:
        print_json({"topic": topic, "schema": None})
        return
    say(f"topic {topic} has no schema")


def _read(file: Path) -> str:
    with click.open_file(str(file), encoding="utf-8") as opened:
        text: str = opened.read()
    return text
