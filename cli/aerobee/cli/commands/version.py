"""`aerobee version`: what runs here, and what runs in the cluster."""

from __future__ import annotations

import importlib.metadata
import platform
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.failures import failure_from
from aerobee.cli.options import json_option
from aerobee.cli.output import print_json, remark, say
from aerobee.cli.target import Target, asking_options

if TYPE_CHECKING:
    from aerobee import AdminClient

TIMEOUT_MS = 2_000


@click.command()
@click.option("--local", is_flag=True, help="Do not ask the cluster.")
@json_option
@asking_options(TIMEOUT_MS)
def version(target: Target, local: bool, as_json: bool) -> None:
    """Print the versions of this program, of Python, and of the cluster's brokers.

    Also prints whether this program has compiled modules, and how many.
    It is no error if the cluster does not answer.
    """
    own = importlib.metadata.version("aerobee")
    brokers: list[dict[str, str | None]] = []
    trouble = ""
    if not local:
        try:
            brokers = target.administer(_brokers)
        except Exception as error:
            failure = failure_from(error)
            if failure is None:
                raise
            trouble = failure.format_message()
    if as_json:
        document = {
            "aerobee": own,
            "compiled_modules": compiled_modules(),
            "python": platform.python_version(),
            "brokers": brokers,
        }
        print_json(document | ({"trouble": trouble} if trouble else {}))
        return
    say(f"aerobee {own} ({_form(compiled_modules())})")
    say(f"python {platform.python_version()} ({platform.system()}, {platform.machine()})")
    for broker in brokers:
        said = broker["version"] or "does not answer"
        say(f"{broker['broker']} {said}{_beside(broker['version'], own)}")
    if trouble:
        remark(f"no cluster at {target.nameserver}: {trouble}")


def compiled_modules() -> int:
    """How many modules of this installation are machine code for this Python."""
    made = "*" + EXTENSION_SUFFIXES[0]
    return sum(1 for root in import_module("aerobee").__path__ for _ in Path(root).rglob(made))


def _form(count: int) -> str:
    return f"{count} modules compiled" if count else "pure Python"


async def _brokers(admin: AdminClient) -> list[dict[str, str | None]]:
    from aerobee.cli import cluster_picture

    return [
        {
            "broker": f"{each.broker_name}/{each.broker_id}",
            "version": None if each.statistics is None else each.statistics.version,
        }
        for each in await cluster_picture.look(admin, await admin.cluster())
    ]


def _beside(version: str | None, own: str) -> str:
    """Brokers are upgraded one by one; a mixture is worth a look."""
    return "" if version in (None, own) else f" (this program: {own})"
