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

from aerobee.runtime.tls_config import TlsConfig

if TYPE_CHECKING:
    from aerobee.client_core import ClusterConnection

PATIENCE_S = 1.0
NAMES_MAX = 1_000
"""More are no help to anyone who chooses among them."""

Names = Callable[["ClusterConnection"], Awaitable[list[str]]]
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


async def _topics(connection: ClusterConnection) -> list[str]:
    from aerobee.client_core import Topics

    listed = await Topics(connection, timeout_ms=int(PATIENCE_S * 1_000)).list()
    return [each.name for each in listed]


async def _groups(connection: ClusterConnection) -> list[str]:
    from aerobee.client_core import Admin

    return await Admin(connection, timeout_ms=int(PATIENCE_S * 1_000)).list_groups()


async def _brokers(connection: ClusterConnection) -> list[str]:
    from aerobee.client_core import Admin

    description = await Admin(connection, timeout_ms=int(PATIENCE_S * 1_000)).describe_cluster()
    return sorted({each.identity.broker_name for each in description.brokers})


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
    from aerobee.client_core import ClusterConnection

    given = context.params
    files = {name: given.get(f"tls_{name}") or "" for name in ("ca", "certificate", "key")}
    tls = TlsConfig(**{name: Path(file) if file else "" for name, file in files.items()})
    is_on = given.get("is_on")
    encrypted = tls != TlsConfig() if is_on is None else bool(is_on)
    async with asyncio.timeout(PATIENCE_S):
        async with ClusterConnection(
            str(given["nameserver"]), str(given["cluster"]), tls=tls if encrypted else False
        ) as connection:
            return await names(connection)


topic_names = _completing(_topics)
group_names = _completing(_groups)
broker_names = _completing(_brokers)
"""For `shell_complete` of arguments and options of commands with `target_options`."""
