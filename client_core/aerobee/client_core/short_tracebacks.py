"""What a client raises shows its caller's code, and of this library little more than the method
that was called: the error says what happened and what to do.

Nothing else is shortened: an error that no method documents keeps its frames, for it is a bug.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TypeVar

from aerobee.runtime.errors import AerobeeError

Error = TypeVar("Error", bound=BaseException)

TOLD = (AerobeeError, asyncio.CancelledError)
"""What a caller expects: how it came through this library tells him nothing."""

_OURS = frozenset({"aerobee", "asyncio", "concurrent", "contextlib", "uvloop"})


def shortened(error: Error) -> Error:
    """The error, to be raised again, from the first frame of the caller's own code, as of a
    coroutine that was called from here."""
    return error.with_traceback(_frames_of_others(error.__traceback__))


def _frames_of_others(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _OURS:
            return traceback
        traceback = traceback.tb_next
    return None


async def end_with(tasks: asyncio.TaskGroup, error: BaseException | None) -> None:
    """End a group of tasks with the block of a caller, which `error` ended.

    The caller's own error is not the group's: it leaves the block as it is, not inside a group,
    and not by way of this.
    """
    if not isinstance(error, asyncio.CancelledError):
        await tasks.__aexit__(None, None, None)
        return
    traceback = error.__traceback__
    try:
        await tasks.__aexit__(type(error), error, traceback)
    except asyncio.CancelledError as raised:
        if raised is not error:
            raise
        error.__traceback__ = traceback
