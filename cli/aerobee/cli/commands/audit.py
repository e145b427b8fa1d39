"""`aerobee audit`: is every acknowledged message still there, and is each group's progress sane?

Spark is an extra: this module and its help need neither pyspark nor Java.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.failures import Failure
from aerobee.cli.options import chosen_format, json_format_option
from aerobee.cli.output import remark, say
from aerobee.offset_audit.run.arguments import ARGUMENTS, Argument
from aerobee.offset_audit.run.choosing import (
    LOCAL,
    ONLY_HERE,
    SPARK,
    chosen_engine,
    keeps_parts,
    rows_max,
)
from aerobee.offset_audit.run.exit_codes import USAGE, exit_code_of, is_understood
from aerobee.offset_audit.run.request import AuditRequest, request_of
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.errors import InvalidArgument

if TYPE_CHECKING:
    from aerobee.offset_audit.outputs.summary import Summary
    from aerobee.offset_audit.run.engine import RunEngine
    from aerobee.offset_audit.run.progress import Progress


class AuditCommand(click.Command):
    """Wrong usage leaves with a code that cannot be taken for a finding's."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            # click declares it per class.
            error.__dict__["exit_code"] = USAGE
            raise


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for one in reversed(ARGUMENTS):
        command = _option(one)(command)
    return command


def _option(one: Argument) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names = (f"--{one.name}", one.name)
    if one.metavar is None:
        return click.option(*names, is_flag=True, help=one.help)
    kind: click.ParamType[Any] | None = None
    if one.choices:
        kind = click.Choice(one.choices)
    elif one.is_number:
        kind = click.INT
    metavar = None if one.choices else one.metavar
    return click.option(
        *names,
        metavar=metavar,
        type=kind,
        multiple=one.is_repeatable,
        callback=chosen_format if one.name == "format" else None,
        help=one.help,
    )


@click.command(cls=AuditCommand)
@_options
@json_format_option
def audit(**values: Any) -> None:
    """Audit a live cluster, or stores at rest (Aerobee's or Apache RocketMQ's).

    Asks each broker once for its queues, committed offsets, members, leases and epochs; with --deep
    also reads every byte of the stores. Changes nothing. A small audit runs in this process, a
    large one on Spark.

    \b
    Examples:
      aerobee audit
      aerobee audit --nameserver ns-1:8081 --out audit/ --history audit/
      aerobee audit --store /backup/broker-a=broker-a:0 --deep --report a.html
      aerobee audit --watch

    \b
    Requires pip install '.[audit]' in a checkout; Spark also requires Java 17.

    \b
    Exit codes by the worst finding:
      0 INFO or none, 1 WARNING, 2 ERROR, 3 CRITICAL
    Others:
      64 wrong usage, 66 nothing to audit,
      69 Java, pyspark or the cluster is missing,
      70 failed, 73 cannot write, 130 interrupted
    """
    try:
        code = _audit(values)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except KeyboardInterrupt as error:
        code = exit_code_of(error)
    except Exception as error:
        if is_understood(error):
            raise Failure(str(error), exit_code=exit_code_of(error)) from error
        # Python's own exit code for a bug would read as a warning found.
        traceback.print_exc()
        code = exit_code_of(error)
    raise click.exceptions.Exit(code)


def _audit(values: dict[str, Any]) -> int:
    request = request_of(values)
    # Before anything that imports them, so that their absence is one sentence.
    from aerobee.offset_audit.run.java import require_java, require_packages, silence_pyspark

    require_packages()
    silence_pyspark()
    if keeps_parts(request) and chosen_engine(request) == SPARK:
        raise InvalidArgument(ONLY_HERE)
    if chosen_engine(request) == SPARK:
        require_java()
    if request.stores:
        from aerobee.offset_audit.sources.store.folders import find_stores

        # A wrong path is told before Spark's start, not after it.
        find_stores(place.path for place in request.stores)
    return _watch(request) if request.watch_s is not None else _once(request)


def _once(request: AuditRequest) -> int:
    from aerobee.offset_audit.outputs.console import printed
    from aerobee.offset_audit.run.engine import TooManyRows
    from aerobee.offset_audit.run.local_run import LocalRun
    from aerobee.offset_audit.run.pipeline import run_audit

    clock, chance = SystemClock(), system_random()
    with contextlib.ExitStack() as stack:
        progress, ask = stack.enter_context(_progress())

        def run(engine: RunEngine) -> int:
            found = run_audit(engine, request, clock=clock, chance=chance, progress=progress)
            say(printed(found, request.format), keep="\n", nl=False)
            return found.exit_code

        if chosen_engine(request) == LOCAL:
            try:
                return run(LocalRun(rows_max(request)))
            except TooManyRows as error:
                progress.note(str(error))
        return _on_spark(request, run, progress, ask)


def _on_spark(
    request: AuditRequest, run: Callable[[RunEngine], int], progress: Progress, ask: Ask
) -> int:
    from aerobee.offset_audit.run.java import require_java
    from aerobee.offset_audit.run.session import audit_session, keep_classes, task_counts
    from aerobee.offset_audit.run.spark_run import SparkRun

    require_java()
    is_brief = not (request.is_deep and request.stores)
    with contextlib.ExitStack() as stack:
        with progress.stage("start Spark"):
            session = stack.enter_context(
                audit_session(
                    request.master,
                    settings=dict(request.spark_settings),
                    is_brief=is_brief,
                    knows_sources=bool(request.stores),
                )
            )
        ask(lambda: task_counts(session))
        code = run(SparkRun(session))
        if is_brief:
            with contextlib.suppress(KeyboardInterrupt):
                keep_classes(session)
    return code


def _watch(request: AuditRequest) -> int:
    from aerobee.offset_audit.run.engine import TooManyRows
    from aerobee.offset_audit.run.kept import Kept
    from aerobee.offset_audit.run.local_run import LocalRun
    from aerobee.offset_audit.run.session import audit_session
    from aerobee.offset_audit.run.spark_run import SparkRun

    if chosen_engine(request) == LOCAL:
        try:
            return _watch_with(LocalRun(rows_max(request), Kept()), request)
        except TooManyRows as error:
            remark(f"aerobee: {error}")
    with contextlib.ExitStack() as stack:
        with _progress() as (progress, _), progress.stage("start Spark"):
            session = stack.enter_context(
                audit_session(request.master, settings=dict(request.spark_settings))
            )
        return _watch_with(SparkRun(session), request)


def _watch_with(engine: RunEngine, request: AuditRequest) -> int:
    from rich.console import Console

    from aerobee.cli.audit_display import WatchScreen
    from aerobee.offset_audit.outputs.console import printed
    from aerobee.offset_audit.run.progress import SilentProgress
    from aerobee.offset_audit.run.watch import watch

    def echo(summary: Summary | None, trouble: str) -> None:
        if summary is None:
            remark(f"aerobee: this run failed: {trouble}")
        else:
            say(printed(summary, request.format), keep="\n", nl=False)

    clock, chance = SystemClock(), system_random()
    with contextlib.ExitStack() as stack:
        seen = echo
        told: Progress = SilentProgress()
        if sys.stdout.isatty() and request.format == "text":
            screen = WatchScreen(Console(), request.watch_s or 0, clock)
            seen, told = stack.enter_context(screen.shown()).seen, screen
        else:
            remark(f"the first run is under way; a run begins every {request.watch_s} s")
        last = watch(engine, request, seen, clock=clock, chance=chance, progress=told)
    return last.exit_code if last is not None else 0


Ask = Callable[[Callable[[], tuple[int, int]]], None]


@contextlib.contextmanager
def _progress() -> Iterator[tuple[Progress, Ask]]:
    if sys.stderr.isatty():
        from aerobee.cli.audit_display import BarProgress

        with BarProgress().shown() as bars:
            yield bars, bars.ask
        return
    from aerobee.offset_audit.run.progress import PlainProgress

    yield PlainProgress(SystemClock()), lambda _: None
