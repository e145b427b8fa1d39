"""`aerobee consume`: print a topic's messages, as a member of a group or without a trace."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from aerobee.cli.completion import group_names, topic_names
from aerobee.cli.event_loop import run
from aerobee.cli.failures import NEGATIVE, EnvironmentFailure
from aerobee.cli.moments import (
    MOMENT_METAVAR,
    Moment,
    MomentKind,
    moment_argument,
    patience_argument,
)
from aerobee.cli.options import duration_option, format_option, json_format_option
from aerobee.cli.output import counted, remark
from aerobee.cli.queue_places import queue_option
from aerobee.cli.target import Target, connection_options

if TYPE_CHECKING:
    from aerobee.cli.meter import Meter
    from aerobee.cli.notices import WaitNotice
    from aerobee.client_core import ReceivedMessage
    from aerobee.consumer_client import PullConsumer
    from aerobee.consumer_client.filters import Expression

POLL_MESSAGES_MAX = 1_000
POLL_TIMEOUT_S = 1.0
COMMIT_TIMEOUT_S = 5.0
NEW_GROUP_TIMEOUT_S = 1.0
"""Of a question for a remark only."""

ToLine = Callable[["ReceivedMessage"], bytes]
_STARTS = {MomentKind.FIRST: "FIRST", MomentKind.LAST: "LAST", MomentKind.TIME: "TIMESTAMP"}


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--group",
    shell_complete=group_names,
    help="The consumer group, whose members share the queues. Without it, nothing is committed.",
)
@click.option(
    "--from",
    "start",
    callback=moment_argument,
    metavar=MOMENT_METAVAR,
    default="first",
    show_default=True,
    help="Where to start; with --group, only where the group has no committed offset.",
)
@queue_option(help="Without a group: only this queue; repeatable.  [default: all queues]")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="Without a group: start at this offset of each queue, instead of --from.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@click.option(
    "--idle-timeout",
    "idle_timeout_s",
    metavar="TIME",
    callback=patience_argument,
    help="End when no message arrives for this long.",
)
@click.option(
    "--broadcast", is_flag=True, help="Receive all messages; keep the offsets in a local file."
)
@click.option(
    "--tag",
    "tags",
    metavar="EXPRESSION",
    help="Only messages with these tags, for example 'paid || refunded'.  [default: *]",
)
@click.option(
    "--sql",
    "condition",
    metavar="CONDITION",
    help='Only messages for whose properties this is true, for example "price > 5 AND region IN '
    "('eu', 'us')\" (docs/filters.md).",
)
@format_option(
    "text: bodies, one a line; json: objects that `aerobee produce --format json` reads."
)
@json_format_option
@click.option("--client-id", help="This member's name.  [default: from host and process]")
@duration_option(
    "--session-timeout",
    10_000,
    "How long the group waits for this member before it reassigns its queues.",
    min_ms=500,
)
@connection_options
def consume(
    target: Target,
    topic: str,
    group: str | None,
    start: Moment,
    queues: tuple[str, ...],
    offset: int | None,
    count: int | None,
    idle_timeout_s: float | None,
    broadcast: bool,
    tags: str | None,
    condition: str | None,
    line_format: str,
    client_id: str | None,
    session_timeout_ms: int,
) -> None:
    """Print messages of TOPIC, one a line; with --group, commit what was printed.

    A new group starts at the first message, and the command says so on standard error, unless
    --from is given. The clients in Python start at the last.

    Use --count N, not `| head -N`: with --group, all that was written to the pipe is committed.

    Without --group it only looks, and the cluster keeps no trace of it.

    Runs until Ctrl-C unless --count or --idle-timeout ends it. Exit code 1: fewer than --count
    messages arrived in time. After 3 s, says on standard error what it is waiting for.
    """
    from aerobee.cli.message_lines import json_of_message, text_for_terminal, text_of_message
    from aerobee.cli.meter import opened_meter
    from aerobee.consumer_client import ConsumerConfig, PullConsumer, StartFrom
    from aerobee.runtime.clock import SystemClock

    _check_usage(group, queues, offset, broadcast, tags, condition)
    says_start = _is_given("start")
    to_text = text_for_terminal if sys.stdout.isatty() else text_of_message
    to_line = json_of_message if line_format == "json" else to_text
    expression = _expression(tags, condition)

    async def main(printer: _Printer) -> int:
        if group is None:
            place = start if offset is None else offset
            return await _look(target, topic, queues, place, expression, printer, idle_timeout_s)
        consumer = PullConsumer(
            group,
            nameservers=target.nameserver,
            broadcasting=broadcast,
            start_from=StartFrom[_STARTS[start.kind]],
            start_timestamp_ms=start.timestamp_ms if start.kind is MomentKind.TIME else None,
            client_id=client_id,
            cluster=target.cluster,
            tls=target.tls,
            config=ConsumerConfig(session_timeout_ms=session_timeout_ms, await_cluster_ms=0),
        )
        consumer.subscribe(topic, expression)
        if not (broadcast or says_start):
            await _tell_of_new_group(target, group, topic)
        return await _consume(consumer, topic, printer, idle_timeout_s)

    # What is printed on the terminal is progress enough.
    with opened_meter(
        f"from {topic}", SystemClock(), total=count, quiet=sys.stdout.isatty()
    ) as meter:
        printed = run(lambda: main(_Printer(to_line, count, meter)))
    if count is not None and printed < count:
        assert idle_timeout_s is not None
        remark(_too_few(printed, count, idle_timeout_s))
        raise click.exceptions.Exit(NEGATIVE)
    if sys.stderr.isatty():
        remark(counted(printed, "message"))


def _is_given(parameter: str) -> bool:
    """Rather than left to its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not ParameterSource.DEFAULT


def _check_usage(
    group: str | None,
    queues: tuple[str, ...],
    offset: int | None,
    broadcast: bool,
    tags: str | None,
    condition: str | None,
) -> None:
    """Raises click.UsageError for options that contradict each other."""
    if tags is not None and condition is not None:
        raise click.UsageError("--tag and --sql cannot be combined; TAGS is a property for --sql")
    if group is not None and (queues or offset is not None):
        raise click.UsageError(
            "--queue and --offset are for reading without --group; to move a group: "
            "`aerobee offset reset`"
        )
    if group is None and broadcast:
        raise click.UsageError("--broadcast needs --group, under which it keeps its offsets")


def _expression(tags: str | None, condition: str | None) -> Expression:
    """Raises FilterIllegal for one that can be no filter."""
    from aerobee.consumer_client.filters import compared_tags, sql

    expression = (tags or "*") if condition is None else sql(condition)
    compared_tags(expression)  # or it is refused
    return expression


async def _tell_of_new_group(target: Target, group: str, topic: str) -> None:
    from aerobee.runtime.errors import AerobeeError

    try:
        async with asyncio.timeout(NEW_GROUP_TIMEOUT_S), target.admin_client() as admin:
            queues = [each.queue for each in (await admin.topics.describe(topic)).queues]
            committed = await admin.offsets.committed(group, queues)
    except (AerobeeError, TimeoutError):
        return  # The consumer meets it, too, and knows whether it passes.
    if all(each is None for each in committed.values()):
        remark(
            f"group {group} is new on {topic} and starts at the first message; to start "
            "elsewhere, give --from last or --from TIME"
        )


async def _look(
    target: Target,
    topic: str,
    queues: tuple[str, ...],
    place: Moment | int,
    expression: Expression,
    printer: _Printer,
    idle_timeout_s: float | None,
) -> int:
    """Without a group. Returns how many messages were printed."""
    from aerobee.cli.notices import WaitNotice
    from aerobee.cli.peeking import peek
    from aerobee.runtime.clock import SystemClock

    notice = WaitNotice(SystemClock(), list)  # What is in the way ends it.
    async with target.admin_client() as admin:
        with notice.silence(_waits_for(topic), printer.has_printed):
            await peek(
                admin,
                topic,
                queues=queues,
                place=place,
                expression=expression,
                idle_timeout_s=idle_timeout_s,
                show=printer.show,
            )
    return printer.printed


def _too_few(printed: int, count: int, idle_timeout_s: float) -> str:
    if printed == 0:
        return f"0 of {count:,} messages arrived within {idle_timeout_s:g} s"
    return f"{printed:,} of {count:,} messages arrived, then none within {idle_timeout_s:g} s"


def _waits_for(topic: str) -> str:
    return f"waiting for messages of {topic}"


async def _consume(
    consumer: PullConsumer, topic: str, printer: _Printer, idle_timeout_s: float | None
) -> int:
    """Returns how many messages were printed."""
    from aerobee.cli.notices import WaitNotice
    from aerobee.runtime.clock import SystemClock

    notice = WaitNotice(SystemClock(), consumer.obstacles)
    async with AsyncExitStack() as stack:
        watch = asyncio.get_running_loop().create_task(notice.run(), name="consume:wait-notice")
        try:
            await consumer.start()
        finally:
            watch.cancel()
        stack.push_async_exit(consumer)
        try:
            with notice.silence(_waits_for(topic), printer.has_printed):
                printed = await _print_messages(consumer, notice, printer, idle_timeout_s)
        except asyncio.CancelledError:
            # After Ctrl-C too, what was printed does not come again. If printing itself failed,
            # the messages in hand stay uncommitted.
            await _commit(consumer)
            raise
        await _commit(consumer)
    return printed


async def _commit(consumer: PullConsumer) -> None:
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S) as scope:
            await consumer.commit()
    except TimeoutError:
        if not scope.expired():
            raise
        raise EnvironmentFailure(
            f"no broker took the offsets of what was printed last within {COMMIT_TIMEOUT_S:g} s: "
            "these messages will be delivered again"
        ) from None


async def _print_messages(
    consumer: PullConsumer,
    notice: WaitNotice,
    printer: _Printer,
    idle_timeout_s: float | None,
) -> int:
    loop = asyncio.get_running_loop()
    last_s = loop.time()
    while wanted := printer.wanted:
        patience_s = POLL_TIMEOUT_S
        if idle_timeout_s is not None:
            patience_s = min(patience_s, last_s + idle_timeout_s - loop.time())
            if patience_s <= 0:
                break
        messages = await consumer.poll(wanted, timeout=patience_s)
        notice.look()
        if not messages:
            continue
        printer.show(messages)
        last_s = loop.time()
    return printer.printed


class _Printer:
    """Prints what is shown to it, up to `count` messages."""

    def __init__(self, to_line: ToLine, count: int | None, meter: Meter) -> None:
        self._to_line = to_line
        self._count = count
        self._meter = meter
        self.printed = 0

    @property
    def wanted(self) -> int:
        """How many messages to ask for; 0: that was all."""
        if self._count is None:
            return POLL_MESSAGES_MAX
        return min(self._count - self.printed, POLL_MESSAGES_MAX)

    def has_printed(self) -> bool:
        return self.printed > 0

    def show(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether more is wanted."""
        some = messages if self._count is None else messages[: self._count - self.printed]
        output = sys.stdout.buffer
        lines = b"".join(self._to_line(message) + b"\n" for message in some)
        output.write(lines)
        output.flush()
        self.printed += len(some)
        self._meter.add(len(some), len(lines), done=self.printed)
        return self.wanted > 0
