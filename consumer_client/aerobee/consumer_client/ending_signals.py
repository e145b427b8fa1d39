"""Makes a consumer's `run` end in order when its process is asked to end.

The user's own handlers take precedence: signals are handled only if SIGTERM would end the process
at once, or Ctrl-C would cancel the main task of `asyncio.run`, and are restored when `run` ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt here, as Ctrl-C does."""
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process_id = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != process_id:
            # A child forked by the user's code ends as if this did not exist.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop`, if this is the main task of `asyncio.run`: other
    tasks end with that one, and one of many must not withhold a signal from the rest."""
    former = signal.getsignal(signal.SIGINT)
    if not _is_main_thread() or not _is_for_this_task(former):
        yield
        return
    loop = asyncio.get_running_loop()
    taken = [signal.SIGINT]
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        taken.append(signal.SIGTERM)

    def give_back() -> None:
        if taken:
            for number in taken:
                loop.remove_signal_handler(number)
            taken.clear()
            signal.signal(signal.SIGINT, former)

    def on_signal() -> None:
        # The next one has its original effect: it does not wait.
        give_back()
        stop()

    for number in taken:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        give_back()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_for_this_task(handler: object) -> bool:
    """Whether the handler is the one with which `asyncio.Runner` cancels its main task, and that is
    this task."""
    return (
        isinstance(handler, partial) and handler.keywords.get("main_task") is asyncio.current_task()
    )
