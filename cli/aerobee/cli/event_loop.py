"""How commands run their coroutines: one event loop, and signals that end it cleanly.

A client command (`run`) is cancelled by Ctrl-C or SIGTERM and may finish what it holds, such as
committing offsets. A command that serves (`run_until_signal`) is asked to stop instead, and is only
cancelled by a second signal.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from aerobee.cli.failures import INTERRUPTED, TERMINATED
from aerobee.cli.notices import show_notices
from aerobee.runtime.event_loop import new_event_loop
from aerobee.runtime.freed_memory import keep_freed_memory

T = TypeVar("T")

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: 129}


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a client command to its end.

    Raises:
        click.exceptions.Exit: a signal ended it; with 128 + the signal's number.
    """
    received: list[signal.Signals] = []
    show_notices()
    try:
        return _run(main, received, lambda task: task.cancel())
    except asyncio.CancelledError:
        if not received:
            raise
        raise click.exceptions.Exit(EXIT_CODES[received[0]]) from None


def run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run a command that serves until `stop`, its argument, is set by a signal.

    Raises:
        click.exceptions.Exit: with 130 after Ctrl-C; a stop that SIGTERM asked for is a success.
    """
    received: list[signal.Signals] = []
    stop = asyncio.Event()

    def on_signal(task: asyncio.Task[Any]) -> None:
        if len(received) == 1:
            stop.set()
        elif len(received) == 2:
            task.cancel()

    try:
        _run(lambda: main(stop), received, on_signal)
    except asyncio.CancelledError:
        if not received:
            raise
        print("aerobee: stopped at once; processes were killed", file=sys.stderr)
        raise click.exceptions.Exit(EXIT_CODES[received[0]]) from None
    if received and received[0] == signal.SIGINT:
        raise click.exceptions.Exit(INTERRUPTED)


def _run(
    main: Callable[[], Coroutine[Any, Any, T]],
    received: list[signal.Signals],
    on_signal: Callable[[asyncio.Task[Any]], object],
) -> T:
    """Each signal goes to `received`, then the task of `main` to `on_signal`."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def handle(number: signal.Signals) -> None:
            received.append(number)
            on_signal(task)

        for number in EXIT_CODES:
            loop.add_signal_handler(number, handle, number)
        return await main()

    keep_freed_memory()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(watched())
