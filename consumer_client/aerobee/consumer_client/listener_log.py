"""What the log says of messages whose listener failed: which, of which group, for which time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.process_queue import Entry
from aerobee.runtime.log import log_event
from aerobee.store_format.record import RecordCorrupt

log = logging.getLogger(__name__)

Entries = Sequence[Entry[ReceivedMessage]]


class ListenerLog:
    """Of the listener of one group. `attempt` is how often it was given the messages so far."""

    def __init__(self, group: str, attempts_max: int) -> None:
        self._group = group
        self._attempts_max = attempts_max

    def failed(
        self, queue: MessageQueue, entries: Entries, attempt: int, error: Exception | None
    ) -> None:
        """With the traceback each time; it returned RETRY_LATER if there is no error."""
        log_event(
            log,
            "listener failed" if error is not None else "listener asked for a retry",
            level=logging.WARNING if attempt == 1 or error is None else logging.ERROR,
            error=error,
            group=self._group,
            queue=queue,
            offset=entries[0][0],
            message_id=_id_of(entries),
            messages=len(entries),
            attempt=attempt,
            attempts_max=self._attempts_max,
            reason="it returned RETRY_LATER" if error is None else repr(error),
        )

    def exhausted(
        self, queue: MessageQueue, entries: Entries, attempt: int, error: Exception | None
    ) -> None:
        """`on_exhausted` was given the messages; they stay where they are if it failed."""
        log_event(
            log,
            "messages skipped by on_exhausted"
            if error is None
            else "on_exhausted failed, the messages are kept",
            level=logging.WARNING if error is None else logging.ERROR,
            error=error,
            group=self._group,
            queue=queue,
            offset=entries[0][0],
            message_id=_id_of(entries),
            messages=len(entries),
            attempt=attempt,
        )


def _id_of(entries: Entries) -> str:
    """Of the first message."""
    try:
        return entries[0][2].message_id
    except RecordCorrupt:
        return "unreadable"
