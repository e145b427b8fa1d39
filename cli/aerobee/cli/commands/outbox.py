"""`aerobee outbox`: send what applications have put into the outbox of their database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from aerobee.cli.event_loop import run_until_signal
from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target, connection_options
from aerobee.runtime.errors import AerobeeError

if TYPE_CHECKING:
    import sqlalchemy as sql

    from aerobee import OutboxRelay

TABLE: Final = "aerobee_outbox"
POLL_S: Final = 0.5


@click.group()
def outbox() -> None:
    """Send the messages that applications store in their own database."""


@outbox.command()
@click.argument("database", metavar="[URL]", envvar="AEROBEE_OUTBOX_DATABASE")
@click.option("--table", default=TABLE, show_default=True, help="The table of messages.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="A topic of its messages, so that brokers may ask about it at once; repeatable.",
)
@click.option(
    "--poll",
    "poll_s",
    type=click.FloatRange(0.01, 3_600),
    default=POLL_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait if there was nothing to send.",
)
@click.option("--once", is_flag=True, help="Send what is there, and end.")
@json_option
@connection_options
def relay(
    target: Target,
    database: str,
    table: str,
    topics: tuple[str, ...],
    poll_s: float,
    once: bool,
    as_json: bool,
) -> None:
    """Send the messages of the outbox at URL, until Ctrl-C.

    Each is sent once, and in order. URL is SQLAlchemy's: postgresql+psycopg://user@host/shop,
    sqlite:///shop.db. It often has a password: give it in the environment, AEROBEE_OUTBOX_DATABASE.
    The driver must be installed. Any number of relays may run, and any of them may be killed.
    """
    from sqlalchemy.exc import SQLAlchemyError

    engine = _engine(database)

    async def main(stop: asyncio.Event) -> None:
        sent = 0
        try:
            async with _opened(target, engine, table, topics, poll_s=None) as found:
                try:
                    await _send_all(found, stop, fails=once)
                finally:
                    sent = found.sent
            if not once and not stop.is_set():
                async with _opened(target, engine, table, topics, poll_s=poll_s) as found:
                    remark(f"sending what comes into {table}; Ctrl-C ends it")
                    await stop.wait()
                    sent += found.sent
        except BaseException:
            if sent:
                remark(f"sent {counted(sent, 'message')} before that", always=True)
            raise
        if as_json:
            print_json({"table": table, "sent": sent})
        else:
            say(f"sent {counted(sent, 'message')}")

    try:
        run_until_signal(main)
    except SQLAlchemyError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise EnvironmentFailure(
            f"the outbox {table} cannot be used: {reason}; check the database and --table, and "
            "whether the application has made its tables with Outbox.create"
        ) from error
    finally:
        engine.dispose()


def _engine(database: str) -> sql.Engine:
    """Raises UsageError: it is no URL of a database, or its driver is missing."""
    try:
        import sqlalchemy as sql
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        raise EnvironmentFailure(
            "an outbox needs SQLAlchemy: pip install 'aerobee[outbox]'"
        ) from None
    try:
        return sql.create_engine(database)
    except ArgumentError as error:
        raise click.UsageError(
            "the URL is none of a database; write it as sqlite:///shop.db or "
            "postgresql+psycopg://user@host/shop"
        ) from error
    except ModuleNotFoundError as error:
        raise EnvironmentFailure(
            f"the driver of the database is not installed: pip install {error.name}"
        ) from error


@asynccontextmanager
async def _opened(
    target: Target,
    engine: sql.Engine,
    table: str,
    topics: tuple[str, ...],
    *,
    poll_s: float | None,
) -> AsyncIterator[OutboxRelay]:
    from aerobee import ClusterConnection, Outbox, OutboxRelay

    async with (
        ClusterConnection(target.nameserver, target.cluster, tls=target.tls) as connection,
        OutboxRelay(
            Outbox(name=table), engine, topics=topics, poll=poll_s, connection=connection
        ) as relay,
    ):
        yield relay


async def _send_all(relay: OutboxRelay, stop: asyncio.Event, *, fails: bool) -> None:
    """What is there. `fails`: an error of the cluster ends it, as one of the database does."""
    try:
        while not stop.is_set() and await relay.send_some():
            pass
    except AerobeeError as error:
        if fails:
            raise
        remark(f"not sent yet: {error}")
