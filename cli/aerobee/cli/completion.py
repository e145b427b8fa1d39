"""Names that a shell completes: topics and groups, asked of the cluster while a line is typed.

A key that is pressed waits for the answer, and nobody asked for an error: so the cluster is given
little time, and whatever goes wrong completes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from aerobee.rpc.tls_config import TlsConfig

if TYPE_CHECKING:
    from aerobee import AdminClient

PATIENCE_S = 1.0
NAMES_MAX = 1_000
"""More are no help to anyone who chooses among them."""

Names = Callable[["AdminClient"], Awaitable[list[str]]]
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


async def _topics(admin: AdminClient) -> list[str]:
    return [each.name for each in await admin.topics.list()]


async def _groups(admin: AdminClient) -> list[str]:
    return await admin.groups.list()


async def _brokers(admin: AdminClient) -> list[str]:
    return sorted({each.broker_name for each in (await admin.cluster()).brokers})


def _completing(names: Names) -> Completion:
    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            known = asyncio.run(_asked(context, names))
        except Exception:
            return []
        return [CompletionItem(each) for each in known if each.startswith(incomplete)][:NAMES_MAX]

    return complete


async def _asked(context: click.Context, names: Names) -> list[str]:
    from aerobee.cli.target import Target

    given = context.params
    files = {name: given.get(f"tls_{name}") or "" for name in ("ca", "certificate", "key")}
    tls = TlsConfig(**{name: Path(file) if file else "" for name, file in files.items()})
    is_on = given.get("is_on")
    encrypted = tls != TlsConfig() if is_on is None else bool(is_on)
    target = Target(
        str(given["nameserver"]),
        str(given["cluster"]),
        tls=tls if encrypted else False,
        timeout_s=PATIENCE_S,
    )
    async with asyncio.timeout(PATIENCE_S):
        async with target.admin_client() as admin:
            return await names(admin)


topic_names = _completing(_topics)
group_names = _completing(_groups)
broker_names = _completing(_brokers)
"""For `shell_complete` of arguments and options of commands with `target_options`."""
