"""Says when something kept the event loop from running: no heartbeat is sent meanwhile."""

from __future__ import annotations

import asyncio
import logging

from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

LOOK_S = 0.5
BLOCKED_S = 1.0
"""Who wakes up so much too late says so: it is more than a busy machine does."""

ADVICE = (
    "make a listener that blocks a plain function, which runs in a thread, or have it await; "
    "or the process was paused"
)


async def watch_loop(group: str) -> None:
    """One warning for each time that the loop stood still; endless."""
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
