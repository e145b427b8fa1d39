"""The event loop of our programs and threads."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's if it is installed, which services require and clients do not; otherwise asyncio's
    own."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
