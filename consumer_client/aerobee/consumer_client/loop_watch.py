"""Reports when something blocked the event loop: no heartbeats are sent in that time."""

from __future__ import annotations

import asyncio
import logging

from aerobee.runtime.clock import SystemClock, clock_here
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

LOOK_S = 0.5
BLOCKED_S = 1.0
"""A wake-up this late is reported: a busy machine alone does not cause it."""

ADVICE = (
    "make a listener that blocks a plain function, which runs in a thread, or have it await; "
    "or the process was paused"
)


async def watch_loop(group: str) -> None:
    """One warning for each time the loop was blocked. Returns only in virtual time, at once: that
    jumps over the ends of sleeps, and stands still while anything runs."""
    if not isinstance(clock_here(), SystemClock):
        return
    now = asyncio.get_running_loop().time
    while True:
        due_s = now() + LOOK_S
        await asyncio.sleep(LOOK_S)
        late_s = now() - due_s
        if late_s > BLOCKED_S:
            log_event(
                log,
                "the event loop was blocked",
                level=logging.WARNING,
                group=group,
                blocked_s=round(late_s, 1),
                advice=ADVICE,
            )
