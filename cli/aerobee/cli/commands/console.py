"""`aerobee console`: web pages on a cluster, for browsers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import click

from aerobee.cli.console_pages import check_certificate, console_on
from aerobee.cli.event_loop import run_until_signal
from aerobee.cli.output import remark, say
from aerobee.cli.target import Target, connection_options
from aerobee.runtime.log import LogConfig, configure_logging

if TYPE_CHECKING:
    from aerobee.console.settings import ConsoleSettings

PORT_DEFAULT = 8088


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. Others than this machine's own need https.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT_DEFAULT,
    show_default=True,
    help="The port; 0: any free one.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A host name by which browsers may reach it, besides localhost; repeatable.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let everyone who reaches it change things in a cluster without access control.",
)
@click.option("--hide-bodies", is_flag=True, help="Show no bodies of messages.")
@click.option(
    "--https-certificate",
    default="",
    metavar="FILE",
    help="PEM file of the certificate for browsers, with --https-key.",
)
@click.option("--https-key", default="", metavar="FILE", help="PEM file of its private key.")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy in front of it speaks https to browsers.",
)
@click.option(
    "--allow-certificate-user",
    is_flag=True,
    help="Start although --tls-certificate proves a user, who every visitor then is.",
)
@click.option(
    "--audit-results",
    default="",
    metavar="DIR",
    help="Show the last offset audit, from the folder of `aerobee audit --out`.",
)
@connection_options
def console(
    target: Target,
    host: str,
    port: int,
    names: tuple[str, ...],
    allow_changes: bool,
    hide_bodies: bool,
    https_certificate: str,
    https_key: str,
    behind_proxy: bool,
    audit_results: str,
    allow_certificate_user: bool,
) -> None:
    """Show the cluster in a browser, until Ctrl-C.

    With access control, visitors sign in as users of the cluster, whose policies decide what they
    see and change; the credentials of the environment are not used. Without it, everyone who
    reaches the port sees everything, and nobody changes anything unless --allow-changes is given.
    """
    from aerobee.console.settings import ConsoleSettings

    settings = ConsoleSettings(
        host=host,
        port=port,
        names=names,
        allow_changes=allow_changes,
        show_bodies=not hide_bodies,
        certificate=https_certificate,
        key=https_key,
        behind_tls=behind_proxy,
        audit_results=audit_results,
    )
    if bool(https_certificate) != bool(https_key):
        raise click.UsageError("--https-certificate and --https-key belong together")
    if not (settings.is_on_loopback or settings.is_https):
        raise click.UsageError(
            f"--host {host} lets other machines in, and secrets would be sent unencrypted: "
            "give --https-certificate and --https-key, or --behind-proxy"
        )
    configure_logging(LogConfig())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    is_checked = not allow_certificate_user
    run_until_signal(lambda stop: _serve(target, settings, stop, is_checked=is_checked))


async def _serve(
    target: Target, settings: ConsoleSettings, stop: asyncio.Event, *, is_checked: bool
) -> None:
    from aerobee.console.serving import serve

    if is_checked:
        await check_certificate(target.nameserver, target.cluster, target.tls)
    if settings.allow_changes:
        remark("without access control, everyone who reaches it may change things")
    pages = console_on(target.nameserver, target.cluster, target.tls, settings)
    await serve(pages, settings, stop, on_ready=lambda address: say(f"console: {address}"))
