"""Waiting for what was written to a journal, for which others wait, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import cast

from aerobee.broker.pop.term import Written


async def until_known(written: Collection[Written]) -> None:
    """Returns once it is known of each whether it is in effect; they continue when this is
    cancelled."""
    if written:
        # A term is pure, and does not know that its writer's futures are asyncio's.
        await asyncio.wait(cast("Collection[asyncio.Future[None]]", written))


def when_known(written: Written | None, told: Callable[[], None]) -> None:
    """Call back once it is known whether it is in effect, even if nothing waits for it."""
    if written is None:
        told()
    else:
        cast("asyncio.Future[None]", written).add_done_callback(lambda _: told())


async def until_confirmed(written: Written | None) -> None:
    """None: there is nothing to wait for. Raises AerobeeError: it is not in effect."""
    if written is not None:
        await until_known((written,))
        if (error := written.exception()) is not None:
            # Raised to each who waits: a traceback grows where an exception is raised.
            raise error.with_traceback(None)
