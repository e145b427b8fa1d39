"""Repeats the audit with one engine.

A run that takes longer than the interval is followed by the next at once, and never by two. A run
that fails is reported and does not end the watch.

In this process, a run reads only what is new since the run before, and once an hour everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Event
from typing import Final

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import Progress
from aerobee.offset_audit.run.request import DEFAULT_WATCH_S, AuditRequest
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError

FULL_EVERY_S: Final = 3_600
"""How long a damage can stay unseen that changes neither the length nor the times of a file."""

Seen = Callable[[Summary | None, str], None]
"""Called for each run: what was found, or why it failed."""


def watch(
    engine: RunEngine,
    request: AuditRequest,
    seen: Seen,
    *,
    clock: Clock,
    chance: random.Random,
    progress: Progress,
    looks_max: int | None = None,
) -> Summary | None:
    """Run until interrupted, or `looks_max` times. Returns the last summary.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        TooManyRows: the cluster is too large for the engine.
    """
    last: Summary | None = None
    looks, interval_s = 0, request.watch_s or DEFAULT_WATCH_S
    pause, full_s = Event(), clock.monotonic_s()
    while True:
        begun_s = clock.monotonic_s()
        if engine.kept is not None:
            is_full = begun_s >= full_s
            engine.kept.begin(is_full=is_full)
            full_s = begun_s + FULL_EVERY_S if is_full else full_s
        try:
            last = run_audit(engine, request, clock=clock, chance=chance, progress=progress)
        except (AerobeeError, OSError) as error:
            seen(None, str(error))
        else:
            seen(last, "")
        looks += 1
        if looks_max is not None and looks >= looks_max:
            return last
        pause.wait(max(0.0, begun_s + interval_s - clock.monotonic_s()))
