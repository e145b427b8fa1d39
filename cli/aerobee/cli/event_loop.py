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
import uvloop

from aerobee.cli.failures import INTERRUPTED, TERMINATED
from aerobee.cli.notices import show_notices

T = TypeVar("T")

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: 129}


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a client command to its end.

    Raises:
        click.exceptions.Exit: a signal ended it; with 128 + the signal's number.
    """
    received: list[signal.Signals] = []
    show_notices()

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            task.cancel()

        for number in EXIT_CODES:
            loop.add_signal_handler(number, on_signal, number)
        return await main()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(cancellable())
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

    async def stoppable() -> None:
        stop = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            received.append(number)
            if len(received) == 1:
                stop.set()
            elif len(received) == 2:
                task.cancel()

        for number in EXIT_CODES:
            loop.add_signal_handler(number, on_signal, number)
        await main(stop)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(stoppable())
    except asyncio.CancelledError:
        if not received:
            raise
        print("aerobee: stopped at once; processes were killed", file=sys.stderr)
        raise click.exceptions.Exit(EXIT_CODES[received[0]]) from None
    if received and received[0] == signal.SIGINT:
        raise click.exceptions.Exit(INTERRUPTED)
