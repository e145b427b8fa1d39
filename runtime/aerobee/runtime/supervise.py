"""One process, one service: event loop, signals, exit codes.

Owns: the way from `main` to a service coroutine and back to an exit code. A service is a coroutine
that takes a Lifecycle, opens what it owns, calls `ready()`, waits for `stop`, closes, and returns.

SIGTERM or SIGINT asks it to stop; a second one, or a stop that outlasts its deadline, ends the
process at once. SIGHUP runs the caller's function on a thread, since it may read files. A failure
that Aerobee reports on purpose (AerobeeError) is one sentence on standard error; anything else is a
bug and keeps its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import IntEnum

import uvloop

from aerobee.runtime import errors
from aerobee.runtime.freed_memory import FreedMemory
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    OK = 0
    USAGE = 2
    """Invalid flags, file or environment variables: nothing was started."""
    REFUSED = 3
    """The environment does not allow a start: port in use, folder locked or not writable."""
    FAILED = 4
    """It ran, and had to give up."""


class Lifecycle:
    """What a service and its process tell each other."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        """Set once, by a signal or by the service itself."""
        self._ready = False

    def ready(self) -> None:
        """Called by the service once it serves; later failures are failures while running."""
        self._ready = True

    @property
    def is_ready(self) -> bool:
        return self._ready


Service = Callable[[Lifecycle], Awaitable[None]]


def run_service(
    name: str,
    service: Service,
    *,
    stop_timeout_s: float = 60.0,
    on_hangup: Callable[[], None] | None = None,
) -> ExitCode:
    """Run `service` until it returns; the exit code says how it went.

    Takes over SIGTERM and SIGINT, so it is called once, from a process's main thread.
    `stop_timeout_s` limits the time from the first signal to the end. With `on_hangup`, SIGHUP is
    taken over too: it is called once for each signal, one call at a time.
    """
    lifecycle = Lifecycle()
    try:
        with (
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            _hangups(runner.get_loop(), on_hangup),
        ):
            runner.run(_run(name, service, lifecycle, stop_timeout_s))
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        return report_failure(name, error, was_ready=lifecycle.is_ready)
    return ExitCode.OK


@contextmanager
def _hangups(
    loop: asyncio.AbstractEventLoop, on_hangup: Callable[[], None] | None
) -> Iterator[None]:
    if on_hangup is None:
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="hangup") as thread:

        def call() -> None:
            try:
                on_hangup()
            except Exception:
                log.exception("SIGHUP failed because of a bug")

        def on_signal() -> None:
            thread.submit(call)

        loop.add_signal_handler(signal.SIGHUP, on_signal)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)


def report_failure(name: str, error: BaseException, *, was_ready: bool = False) -> ExitCode:
    """Explain on standard error why `name` ended, and return the matching exit code."""
    leaves = _leaves(error)
    expected = [leaf for leaf in leaves if isinstance(leaf, errors.AerobeeError)]
    if len(expected) == len(leaves):
        for sentence in dict.fromkeys(str(leaf) for leaf in expected):
            print(f"aerobee {name}: {sentence}", file=sys.stderr, flush=True)
    else:
        traceback.print_exception(error, file=sys.stderr)
        print(
            f"aerobee {name}: failed because of a bug; please report the lines above",
            file=sys.stderr,
        )
    return ExitCode.FAILED if was_ready or len(expected) < len(leaves) else ExitCode.REFUSED


async def _run(name: str, service: Service, lifecycle: Lifecycle, stop_timeout_s: float) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(received: signal.Signals) -> None:
        if lifecycle.stop.is_set():
            _end_now(name, f"second {received.name}: ending without a clean stop", 128 + received)
        log_event(log, "stopping", service=name, signal=received.name)
        lifecycle.stop.set()

    deadline: asyncio.TimerHandle | None = None

    async def arm_deadline() -> None:
        nonlocal deadline
        await lifecycle.stop.wait()
        deadline = loop.call_later(
            stop_timeout_s,
            _end_now,
            name,
            f"not stopped after {stop_timeout_s:g} s: ending without a clean stop",
            int(ExitCode.FAILED),
        )

    for handled in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(handled, on_signal, handled)
    freed = FreedMemory()
    freed.begin()
    try:
        async with asyncio.TaskGroup() as tasks:
            watchdog = tasks.create_task(arm_deadline(), name="stop-deadline")
            try:
                await service(lifecycle)
            finally:
                watchdog.cancel()
    finally:
        freed.end()
        if deadline is not None:
            deadline.cancel()
        for handled in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(handled)


def _end_now(name: str, sentence: str, code: int) -> None:
    print(f"aerobee {name}: {sentence}", file=sys.stderr, flush=True)
    logging.shutdown()
    os._exit(code)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
