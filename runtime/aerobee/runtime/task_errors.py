"""What went wrong in a group of tasks, as one error that callers know.

A task group that is cancelled while one of its tasks fails raises the failure, and the cancellation
is forgotten: whoever takes that for an ordinary failure and tries again would never end.
"""

from __future__ import annotations

import asyncio


def check_not_cancelled() -> None:
    """Raises CancelledError if the running task was asked to end and has not done so yet."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
