"""One consumer process of the demo: it notes every message in its file, then confirms it.

    python -m aerobee.cli.demo.reader --name consumer-1 --group all-flights ...

It works until SIGTERM, then commits, leaves its group and ends. What it has noted before a kill -9
stands; what it has not committed comes again, to another consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from aerobee.cli.demo.flights import parse_flight
from aerobee.cli.demo.sightings import Position, Sighting, SightingsWriter, checksum
from aerobee.client_core import ReceivedMessage
from aerobee.consumer_client import ConsumerConfig, PushConsumer, StartFrom
from aerobee.runtime.log import configure_logging
from aerobee.runtime.supervise import Lifecycle, run_service

BATCH_MESSAGES_MAX = 100


def sighting_of(message: ReceivedMessage) -> Sighting:
    """What is noted of a message; the identity is computed from the body that came."""
    body = message.body
    return Sighting(
        parse_flight(body.decode("ascii")).identity,
        checksum(body),
        Position(message.queue.broker_name, message.queue.queue_id, message.queue_offset),
    )


@click.command()
@click.option("--name", required=True, help="Client id.")
@click.option("--group", required=True)
@click.option("--tags", required=True, help="Tag expression.")
@click.option("--nameserver", required=True)
@click.option("--cluster", required=True)
@click.option("--topic", required=True)
@click.option("--session-timeout-ms", type=int, required=True)
@click.option("--commit-interval-ms", type=int, required=True)
@click.option("--notes", type=click.Path(dir_okay=False, path_type=Path), required=True)
def reader(
    name: str,
    group: str,
    tags: str,
    nameserver: str,
    cluster: str,
    topic: str,
    session_timeout_ms: int,
    commit_interval_ms: int,
    notes: Path,
) -> None:
    """Consume TOPIC and note what comes."""
    writer = SightingsWriter(notes)

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        writer.write([sighting_of(message) for message in messages])

    async def service(lifecycle: Lifecycle) -> None:
        consumer = PushConsumer(
            group,
            handle,
            run_in_thread=False,
            nameservers=nameserver,
            consume_batch_max=BATCH_MESSAGES_MAX,
            start_from=StartFrom.FIRST,
            client_id=name,
            cluster=cluster,
            tls=False,
            config=ConsumerConfig(
                session_timeout_ms=session_timeout_ms, commit_interval_ms=commit_interval_ms
            ),
        )
        consumer.subscribe(topic, tags)
        async with consumer:
            lifecycle.ready()
            await lifecycle.stop.wait()

    configure_logging()
    raise click.exceptions.Exit(run_service(name, service))


if __name__ == "__main__":
    reader(prog_name="reader")
