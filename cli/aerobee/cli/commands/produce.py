"""`aerobee produce`: lines become messages."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aerobee.cli.completion import topic_names
from aerobee.cli.event_loop import run
from aerobee.cli.moments import delay_argument, time_argument
from aerobee.cli.options import format_option, json_option, settings_option, timeout_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target, connection_options

if TYPE_CHECKING:
    from aerobee.cli.meter import Meter
    from aerobee.client_core import ClusterConnection, Message
    from aerobee.producer_client import Producer

BATCH_MESSAGES_MAX = 1_000
BATCHES_IN_FLIGHT = 4
HANDLES_MAX = 10_000
"""Recall handles of about so many messages are printed."""
QUEUES_OF_A_NEW_TOPIC = 4
TOPIC_TIMEOUT_S = 1.0
"""Of a question for a remark only."""

ToMessage = Callable[[bytes], "Message"]


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--tag", help="The tag of each message.")
@click.option("--key", "keys", multiple=True, help="A key of each message; repeatable.")
@click.option("--sharding-key", help="Send all messages, in order, to the queue of this key.")
@click.option(
    "--delay",
    "delay_ms",
    metavar="TIME",
    callback=delay_argument,
    help="Deliver after this time: 30s, 2h.",
)
@click.option(
    "--at",
    "deliver_ms",
    metavar="TIME",
    callback=time_argument,
    help="Deliver at this time: 2026-01-31T12:00, or Unix milliseconds.",
)
@click.option(
    "--delay-level", type=click.IntRange(min=1), help="Deliver after the time of this level."
)
@settings_option(
    "--property", "properties", metavar="NAME=VALUE", help="A property of each message; repeatable."
)
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Send at most this many messages per second.",
)
@format_option(
    "text: a line is a body; json: a line is an object with body, tag, keys, properties, "
    "shardingKey, and delay, deliverAt or delayLevel."
)
@timeout_option(10_000, "How long to try to send each batch, retries included.")
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist.")
@json_option
@connection_options
def produce(
    target: Target,
    topic: str,
    file: Path | None,
    tag: str | None,
    keys: tuple[str, ...],
    sharding_key: str | None,
    delay_ms: int | None,
    deliver_ms: int | None,
    delay_level: int | None,
    properties: dict[str, str],
    rate_per_s: float | None,
    line_format: str,
    timeout_ms: int,
    no_create: bool,
    as_json: bool,
) -> None:
    """Send each line of FILE, or of standard input, to TOPIC as one message.

    Skips empty lines. Prints the number of messages and their rate at the end, and before it the
    recall handle of each message that has a delay or a time. Says on standard error whether it
    created TOPIC, and after 3 s what it is waiting for.
    """
    from aerobee.cli.message_lines import LineDefaults, message_of_json, message_of_text
    from aerobee.client_core import ClusterConnection
    from aerobee.producer_client import Producer, ProducerConfig

    defaults = LineDefaults(
        topic=topic,
        tag=tag,
        keys=keys,
        sharding_key=sharding_key,
        properties=properties,
        delay_ms=delay_ms,
        deliver_ms=deliver_ms,
        delay_level=delay_level,
    )
    if [delay_ms, deliver_ms, delay_level].count(None) < 2:
        raise click.UsageError("--delay, --at and --delay-level exclude each other")
    by_batch: list[list[str]] = []
    parse = message_of_json if line_format == "json" else message_of_text
    config = ProducerConfig(
        send_timeout_ms=timeout_ms,
        create_missing_topics=not no_create,
        # A person wants to know at once.
        await_cluster_ms=0,
    )

    def to_message(line: bytes) -> Message:
        return parse(line, defaults)

    async def main() -> tuple[Meter, float]:
        descriptor = _open(file)
        try:
            async with (
                ClusterConnection(target.nameserver, target.cluster, tls=target.tls) as connection,
                Producer(connection=connection, config=config) as producer,
            ):
                creation = _Creation(connection, topic)
                return await _produce(
                    producer, creation, descriptor, to_message, rate_per_s, by_batch
                )
        finally:
            if file is not None:
                os.close(descriptor)

    meter, elapsed_s = run(main)
    _report(topic, meter, elapsed_s, list(chain.from_iterable(by_batch)), as_json=as_json)


def _report(
    topic: str, meter: Meter, elapsed_s: float, handles: list[str], *, as_json: bool
) -> None:
    """What was sent in how many seconds, and its recall handles."""
    sent = meter.messages
    per_second = sent / elapsed_s if elapsed_s else 0.0
    if as_json:
        print_json(
            {
                "topic": topic,
                "messages": sent,
                "bytes": meter.bytes,
                "seconds": round(elapsed_s, 6),
                "messagesPerSecond": round(per_second, 1),
                **({"recallHandles": handles} if handles else {}),
            }
        )
        return
    if handles and sys.stdout.isatty():
        several = "s" if len(handles) > 1 else ""
        remark(f"recall handle{several}, for `aerobee schedule recall`:")
    for handle in handles:
        say(handle)
    if 0 < len(handles) < sent:
        remark(f"the handles of the other {counted(sent - len(handles), 'message')} are not kept")
    if not sent:
        say("nothing to send: the input was empty")
        return
    say(
        f"sent {counted(sent, 'message')} ({counted(meter.bytes, 'byte')}) to {topic} "
        f"in {elapsed_s:.2f} s: {per_second:,.0f}/s"
    )


class _Creation:
    """Tells that sending has created the topic: it may be a slip of the fingers."""

    def __init__(self, connection: ClusterConnection, topic: str) -> None:
        self.topic = topic
        self._routes = connection.routes
        self._is_asked = self._is_missing = False

    async def look(self) -> None:
        """Before something is sent; later calls do nothing."""
        from aerobee.runtime.errors import AerobeeError, TopicNotFound

        if self._is_asked:
            return
        self._is_asked = True
        try:
            async with asyncio.timeout(TOPIC_TIMEOUT_S):
                await self._routes.route(self.topic)
        except TopicNotFound:
            self._is_missing = True
        except (AerobeeError, TimeoutError):
            return  # Sending meets it, too.

    @property
    def queues(self) -> int:
        """How many it has, as far as it is known."""
        route = self._routes.cached(self.topic)
        return max(1, QUEUES_OF_A_NEW_TOPIC if route is None else len(route.writable_queues))

    def tell(self) -> None:
        """After something was sent; once."""
        route = self._routes.cached(self.topic)
        if self._is_missing and route is not None:
            self._is_missing = False
            remark(f"created topic {self.topic} with {counted(len(route.queues), 'queue')}")


async def _produce(
    producer: Producer,
    creation: _Creation,
    descriptor: int,
    to_message: ToMessage,
    rate_per_s: float | None,
    handles: list[list[str]],
) -> tuple[Meter, float]:
    """What was sent, and in how many seconds. `handles` gets the recall handles, batch by batch in
    the order of the lines."""
    from aerobee.cli.meter import opened_meter
    from aerobee.cli.notices import WaitNotice
    from aerobee.runtime.clock import SystemClock

    size = os.fstat(descriptor).st_size if _is_file(descriptor) else None
    notice = WaitNotice(SystemClock(), producer.obstacles)
    # A bar would be drawn over lines that are typed.
    typed = os.isatty(descriptor)
    with opened_meter(f"to {creation.topic}", SystemClock(), total=size, quiet=typed) as meter:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(notice.run(), name="notice")
            try:
                batches = _paced(descriptor, rate_per_s)
                await _send_all(creation, batches, producer, to_message, meter, handles)
            finally:
                watching.cancel()
        return meter, meter.elapsed_s


async def _send_all(
    creation: _Creation,
    batches: AsyncIterator[list[bytes]],
    producer: Producer,
    to_message: ToMessage,
    meter: Meter,
    handles: list[list[str]],
) -> None:
    """Several batches on their way at a time; the first failure ends it.

    Raises:
        AerobeeError, in a group: lines could not be sent. Whatever ends it early, how many messages
            were acknowledged before is told on standard error.
    """
    places = asyncio.Semaphore(BATCHES_IN_FLIGHT)
    read_bytes = 0

    async def send(batch: list[Message], done: int, found: list[str]) -> None:
        try:
            receipts = await producer.send_batch(batch)
        finally:
            places.release()
        creation.tell()
        if meter.messages < HANDLES_MAX and receipts[0].recall_handle:
            found.extend(receipt.recall_handle for receipt in receipts)
        meter.add(len(batch), sum(len(message.body) for message in batch), done=done)

    try:
        async with asyncio.TaskGroup() as tasks:
            async for lines in batches:
                read_bytes += sum(len(line) + 1 for line in lines)
                messages = [to_message(line) for line in lines if line]
                if messages:
                    await creation.look()
                for batch in _spread(messages, creation.queues):
                    await places.acquire()
                    handles.append([])
                    tasks.create_task(send(batch, read_bytes, handles[-1]), name="send")
    except BaseException:
        if meter.messages:
            sent = counted(meter.messages, "message")
            remark(f"sent {sent} to {creation.topic} before that", always=True)
        raise


def _spread(messages: list[Message], queues: int) -> Iterator[list[Message]]:
    """A batch goes to one queue; so a few messages are several batches, one for each queue. A
    larger number is many batches anyway."""
    size = (
        BATCH_MESSAGES_MAX if len(messages) == BATCH_MESSAGES_MAX else -(-len(messages) // queues)
    )
    for start in range(0, len(messages), max(1, size)):
        yield messages[start : start + size]


async def _paced(descriptor: int, rate: float | None) -> AsyncIterator[list[bytes]]:
    """Lines in batches, no faster than the rate."""
    from aerobee.cli.message_lines import read_lines
    from aerobee.runtime.clock import SystemClock

    clock = SystemClock()
    started_s = clock.monotonic_s()
    given = 0
    # A twentieth of a second at most: a slow rate is a steady one, not a stutter.
    largest = (
        BATCH_MESSAGES_MAX if rate is None else max(1, min(BATCH_MESSAGES_MAX, int(rate / 20)))
    )
    async for lines in read_lines(descriptor):
        for start in range(0, len(lines), largest):
            if rate is not None:
                await asyncio.sleep(max(0.0, started_s + given / rate - clock.monotonic_s()))
            batch = lines[start : start + largest]
            given += len(batch)
            yield batch


def _open(file: Path | None) -> int:
    if file is None:
        if sys.stdin.isatty():
            remark("reading lines from the terminal; end with Ctrl-D")
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
