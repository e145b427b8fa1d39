"""Makes a consumer's `run` end in order when its process is asked to end.

The user's own handlers take precedence: SIGTERM is handled only if it would end the process at
once, Ctrl-C only if it would cancel the main task of `asyncio.run`, each whatever the other does. A
shell starts what it runs with `&` so that it ignores Ctrl-C. Handlers are restored when `run` ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType


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
    if not _is_main_thread() or not _is_main_task():
        yield
        return
    loop = asyncio.get_running_loop()
    former = signal.getsignal(signal.SIGINT)
    taken = []
    if _cancels_main_task(former):
        taken.append(signal.SIGINT)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        taken.append(signal.SIGTERM)

    def give_back() -> None:
        for number in taken:
            loop.remove_signal_handler(number)
        if signal.SIGINT in taken:
            signal.signal(signal.SIGINT, former)
        taken.clear()

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


def _is_main_task() -> bool:
    """Whether `asyncio.run`, or another user of `asyncio.Runner`, ends when this task does."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not asyncio.Runner.run.__code__:
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("task") is asyncio.current_task()


def _cancels_main_task(handler: object) -> bool:
    """Whether the handler is the one with which `asyncio.Runner` cancels its main task."""
    return isinstance(handler, partial) and "main_task" in handler.keywords
