"""Work of the tier that blocks, on threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from aerobee.runtime.errors import AerobeeError

T = TypeVar("T")


async def on_thread(thread: Executor, work: Callable[[], T]) -> T:
    """Raises what the work raises; for an OSError, AerobeeError: a segment could not be read. That
    is no failure of the store, which may never need it."""
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    except OSError as error:
        raise AerobeeError(
            f"a log segment could not be read ({error.strerror or error}): unless retention has "
            "just removed it, check the disk, and the folder with `aerobee store verify`"
        ) from error
